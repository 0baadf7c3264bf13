"""A graph's tables read, sorted and written by the machines of a cluster, whose folders all of them reach."""
