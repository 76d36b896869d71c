"""What every request goes through: caller, snapshot, freshness, retries, idempotency."""
