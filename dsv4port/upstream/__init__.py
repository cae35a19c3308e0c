"""A pin's tree: found, downloaded, checked by hash, and imported into the cache's object store."""
