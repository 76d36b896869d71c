"""Scripts of flows: JavaScript that runs in child processes."""
