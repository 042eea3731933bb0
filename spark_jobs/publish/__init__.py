"""Publishing to the landing zone: plan and stage in workers, then take a number for each file."""
