-- The entities of some runs: in how many of a run's own steps, and in which first.
with wanted as (
    select unnest($runs::varchar[]) as run_id, unnest($numbers::bigint[]) as number
),
taken_over as (
    select run_id, position from steps where inherited
)
select w.number as run, m.kind, m.scope, m.name, count(distinct m.position) as n,
       coalesce(min(m.step), 0) as first
from mentions m
join wanted w on w.run_id = m.run_id
anti join taken_over t on t.run_id = m.run_id and t.position = m.position
group by w.number, m.kind, m.scope, m.name
order by w.number, m.kind, m.scope, m.name
