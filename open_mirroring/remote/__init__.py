"""Far services over HTTP: calls that are bounded, say who asks, and are repeated only where that changes nothing."""
