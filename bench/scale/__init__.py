"""The cost of many syncs at once, and of syncs on a cluster."""
