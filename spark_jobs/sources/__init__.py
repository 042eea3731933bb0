"""Change data as its sources write it: formats (pure decoders) and transports (ranges and bytes, nothing else)."""
