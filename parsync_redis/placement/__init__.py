"""What fits, and what is best: pure functions of a view and a task's needs."""
