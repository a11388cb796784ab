-- Calls by function, with their host time.
SELECT
    function,
    count(*) AS calls,
    count(CASE WHEN failed THEN 1 END) AS failed,
    sum(duration_ns) AS host_ns,
    max(duration_ns) AS longest_host_ns
FROM calls
GROUP BY function
ORDER BY calls DESC, function
