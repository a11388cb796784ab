-- How often each kernel is launched, how often into a graph, and with how many different grids.
SELECT
    kernel_source,
    count(*) AS launches,
    count(CASE WHEN captured THEN 1 END) AS captured,
    count(CASE WHEN result <> 0 THEN 1 END) AS failed,
    count(DISTINCT concat_ws('x', grid_x, grid_y, grid_z)) AS grids,
    min(threads) AS fewest_threads,
    max(threads) AS most_threads
FROM launches
GROUP BY kernel_source
ORDER BY launches DESC, kernel_source NULLS LAST
