"""The audit, the checks of `parsync doctor`, and the reasons why tasks wait."""
