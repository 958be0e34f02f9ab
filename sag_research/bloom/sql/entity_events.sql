-- Events that name one of the entities, and their neighbours along NEXT in every lineage that
-- holds them (so also over a fork), each once under its writer. Hidden runs, such as copies, are
-- there only where they are named.
with recursive line(run_id, writer_id, hi) as (
    select run_id, run_id, cast(null as bigint)
    from runs
    where run_id <> $workspace
      and case when $runs::varchar[] is null then not hidden
               else list_contains($runs::varchar[], run_id) end
    union all
    select line.run_id, child.parent_id, least(coalesce(line.hi, child.fork_position), child.fork_position)
    from line
    join runs child on child.run_id = line.writer_id
    where child.parent_id is not null
),
named as (
    select distinct run_id, position
    from mentions
    where list_contains($entities::varchar[], entity_id)
),
hit as (
    select line.run_id as line_id, named.run_id, named.position
    from line
    join named on named.run_id = line.writer_id and (line.hi is null or named.position <= line.hi)
),
ranked as (
    select line.run_id as line_id, e.run_id, e.position,
           row_number() over (partition by line.run_id order by e.position) as rank
    from line
    join events e on e.run_id = line.writer_id and (line.hi is null or e.position <= line.hi)
    where line.run_id in (select line_id from hit)
      and ($types::varchar[] is null or list_contains($types::varchar[], e.type))
),
centre as (
    select ranked.line_id, ranked.rank
    from ranked
    join hit on hit.line_id = ranked.line_id and hit.run_id = ranked.run_id
            and hit.position = ranked.position
),
chosen as (
    select distinct ranked.run_id, ranked.position, ranked.rank
    from ranked
    join centre on centre.line_id = ranked.line_id
               and ranked.rank between centre.rank - $neighbours and centre.rank + $neighbours
    order by ranked.run_id, ranked.position
    limit $most
)
select c.run_id, c.position, e.type, s.step, c.rank, e.cause,
       left(s.thought, $clip) as thought,
       left(s.action, $clip) as action,
       left(s.observation, $clip) as observation,
       s.exit_code, s.inherited,
       case when s.step is null then left(cast(e.body as varchar), $clip) end as body
from chosen c
join events e on e.run_id = c.run_id and e.position = c.position
left join steps s on s.run_id = c.run_id and s.position = c.position
order by c.run_id, c.position
