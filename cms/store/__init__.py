"""The steps that all requests share: caller, snapshot, freshness, retries, idempotency."""
