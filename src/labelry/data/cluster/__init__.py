"""Training on a Dask cluster (the ``cluster`` extra), and jobs that go on after they stopped.

`labelry.data.cluster.dask_rows.DaskRows` sends passes to where the shards are,
`labelry.data.cluster.locations` opens shards that are not on a local disk, and
`labelry.data.cluster.checkpoint` keeps what each pass came to; the last works for rows anywhere.
"""
