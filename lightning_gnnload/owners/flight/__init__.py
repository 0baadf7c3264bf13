"""Owners by Arrow Flight (gRPC): a client's connection is one DoExchange, over which frames go both ways as over TCP.

Nothing is pickled. The extra ``flight`` is needed, so that nothing imports this package but who has been given an
address of it.
"""
