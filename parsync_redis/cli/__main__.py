"""`python -m parsync_redis.cli`: what `parsync` does, for the interpreter that runs."""

from . import main

if __name__ == "__main__":
    main()
