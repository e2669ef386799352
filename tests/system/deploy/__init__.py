"""The shipped parts: the wheel, docker compose, the rules for Prometheus."""
