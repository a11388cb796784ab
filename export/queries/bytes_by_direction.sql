-- Bytes of successful copies and memsets.
SELECT
    direction,
    count(*) AS copies,
    sum(bytes) AS bytes,
    sum(CASE WHEN async THEN bytes ELSE 0 END) AS async_bytes
FROM copies
WHERE result = 0
GROUP BY direction
ORDER BY direction
