"""What is shipped: the wheel, docker compose, the rules for Prometheus."""
