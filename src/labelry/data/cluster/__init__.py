"""Training on a Dask cluster (the ``cluster`` extra), and jobs that resume.

`labelry.data.cluster.dask_rows.DaskRows` sends passes to where the shards are,
`labelry.data.cluster.locations` opens shards that are not on a local disk, and
`labelry.data.cluster.checkpoint` keeps the result of each pass; it works for any streamed rows.
"""
