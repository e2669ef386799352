"""What is wrong in a cluster: the audit, the checks of `parsync doctor`, and why tasks wait."""
