-- How often each kernel is launched by a call, how many of those calls a stream captured, how often
-- launched graphs ran it, and with how many different grids.
WITH runs AS (
    SELECT kernel_source, captured, result, grid_x, grid_y, grid_z, threads, FALSE AS in_graph
    FROM launches
    UNION ALL
    SELECT kernel_source, captured, result, grid_x, grid_y, grid_z, threads, TRUE AS in_graph
    FROM graph_kernels
)
SELECT
    kernel_source,
    count(CASE WHEN NOT in_graph THEN 1 END) AS launches,
    count(CASE WHEN NOT in_graph AND captured THEN 1 END) AS captured,
    count(CASE WHEN in_graph AND NOT captured THEN 1 END) AS in_graphs,
    count(CASE WHEN result <> 0 THEN 1 END) AS failed,
    count(DISTINCT concat_ws('x', grid_x, grid_y, grid_z)) AS grids,
    min(threads) AS fewest_threads,
    max(threads) AS most_threads
FROM runs
GROUP BY kernel_source
ORDER BY launches DESC, in_graphs DESC, kernel_source NULLS LAST
