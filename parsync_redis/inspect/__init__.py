"""The audit of the state, the checks of `parsync doctor`, and the reasons why tasks wait."""
