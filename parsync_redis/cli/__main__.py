"""`python -m parsync_redis.cli`: runs `parsync` with the Python that runs this module."""

from . import main

if __name__ == "__main__":
    main()
