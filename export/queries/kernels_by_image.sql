-- Kernels by the host time of their launches, over all traces: which image has them, how often they
-- are launched, and on how many threads. A trace has no GPU times: host time is that of enqueueing.
SELECT
    image,
    kernel_source,
    count(*) AS launches,
    count(DISTINCT trace) AS traces,
    sum(duration_ns) AS host_ns,
    max(duration_ns) AS longest_host_ns,
    sum(threads) AS threads
FROM launches
WHERE NOT captured
GROUP BY image, kernel_source
ORDER BY host_ns DESC NULLS LAST, launches DESC, kernel_source NULLS LAST, image NULLS LAST
LIMIT 50
