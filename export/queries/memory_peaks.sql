-- The most memory of each kind that each trace had allocated, and the call that reached it first.
WITH peaks AS (
    SELECT trace, process, memory, max(live_bytes) AS peak_bytes
    FROM memory
    GROUP BY trace, process, memory
)
SELECT p.trace, p.process, p.memory, p.peak_bytes, min(m.call) AS call
FROM peaks p
JOIN memory m
    ON m.trace = p.trace
    AND m.process = p.process
    AND m.memory = p.memory
    AND m.live_bytes = p.peak_bytes
GROUP BY p.trace, p.process, p.memory, p.peak_bytes
ORDER BY p.peak_bytes DESC, p.trace, p.process, p.memory
