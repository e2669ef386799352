"""Work that is stopped or repeated by people: cancel, revoke, drain, expire, requeue."""
