-- Objects that programs never destroyed, by version of the driver and program.
SELECT
    t.driver_version,
    t.program,
    o.kind,
    count(*) AS leaked,
    count(DISTINCT o.trace) AS traces,
    sum(o.bytes) AS bytes
FROM objects o
JOIN traces t ON o.trace = t.trace AND o.process = t.process
WHERE o.leaked
GROUP BY t.driver_version, t.program, o.kind
ORDER BY t.driver_version NULLS LAST, leaked DESC, t.program, o.kind
