"""Values without I/O: ids, needs and offers, tasks, nodes, claims."""
