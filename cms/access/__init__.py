"""Authorization: policies, the guard of queries, rules of permissions, what errors may name."""
