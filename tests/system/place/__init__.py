"""Which task gets which slot: schedulers beside each other, needs, devices, look-ahead."""
