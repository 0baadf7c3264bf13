"""Several machines on one: links that are slow, narrow, silent or cut, and networks of their own.

``delay.py`` puts a link in front of any TCP server; ``network.py`` gives processes machines with names and addresses,
whose cables have a rate and can be pulled; ``ray_nodes.py`` starts the nodes of a Ray cluster, and kills them.
"""
