"""gRPC as Assay uses it: the only place that makes servers and channels.

options     settings of servers and channels, and the channel arguments made of them
server      a server with health, reflection, guard and admission, and its life from start to stop
channel     a channel with deadlines, retries and keepalive
methods     which methods may be retried
streams     answering a stream of requests, several at once
status      domain errors to status codes and back
"""
