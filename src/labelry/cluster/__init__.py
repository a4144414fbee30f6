"""Training on a Dask cluster (the ``cluster`` extra), and jobs that go on after they stopped.

`labelry.cluster.dask_rows.DaskRows` sends passes to where the shards are,
`labelry.cluster.locations` opens shards that are not on a local disk, and
`labelry.cluster.checkpoint` keeps what each pass came to; the last works for rows anywhere.
"""
