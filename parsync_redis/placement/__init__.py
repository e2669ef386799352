"""Find the nodes that fit a task, and the best of them: pure functions of a view and a task's
needs.
"""
