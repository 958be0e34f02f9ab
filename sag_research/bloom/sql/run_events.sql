-- Events of the wanted runs and of the ancestors they took over, each once under its writer.
-- An inherited part ends at the smallest fork position on the way up. Hidden runs, such as copies,
-- are there only where they are named.
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
ranked as (
    select e.run_id, e.position,
           row_number() over (partition by line.run_id order by e.position) as rank
    from line
    join events e on e.run_id = line.writer_id and (line.hi is null or e.position <= line.hi)
    where $types::varchar[] is null or list_contains($types::varchar[], e.type)
),
chosen as (
    select distinct run_id, position, rank
    from ranked
    order by run_id, position
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
