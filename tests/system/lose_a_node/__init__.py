"""Workers and schedulers that are killed or stand still; what isolates runs."""
