"""Answers: data and errors in their envelopes, tags, and the time to send them."""
