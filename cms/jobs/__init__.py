"""Background jobs: the queue and its worker."""
