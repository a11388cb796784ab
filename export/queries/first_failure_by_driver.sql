-- The first call of each trace that failed, by version of the driver.
WITH failures AS (
    SELECT
        trace,
        process,
        call,
        function,
        result_name,
        row_number() OVER (PARTITION BY trace, process ORDER BY call) AS place
    FROM calls
    WHERE failed
)
SELECT
    t.driver_version,
    f.function,
    f.result_name,
    count(*) AS traces,
    min(f.trace) AS example_trace,
    min_by(f.call, f.trace) AS example_call
FROM failures f
JOIN traces t ON f.trace = t.trace AND f.process = t.process
WHERE f.place = 1
GROUP BY t.driver_version, f.function, f.result_name
ORDER BY t.driver_version NULLS LAST, traces DESC, f.function, f.result_name
