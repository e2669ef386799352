"""What people and processes read of the state, without a script that decides."""
