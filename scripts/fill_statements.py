"""SQL statements with which scripts/fill_rollouts.py creates rollouts."""

# `hard` is the difficulty of the task, the others are random per attempt, so that groups are never, sometimes and
# always solved.
ROLLOUTS = """
    INSERT INTO rollouts_rollout (collection_id, task_id, repeat, seed, status, attempt, failures, lost, model_version,
        reward, components, stop_reason, error_kind, error_message, turns, tool_calls, tool_errors, input_tokens,
        output_tokens, judge_calls, judge_tokens, cost, duration, model_time, tool_time, verify_time, tools, answer,
        redactions, flagged, started_at, finished_at{names})
    SELECT %(collection)s, task_id, repeat, place, status,
        CASE WHEN is_over THEN 1 + (luck > 0.97)::int ELSE 0 END,
        CASE WHEN is_over THEN (luck > 0.97)::int ELSE 0 END, 0,
        CASE WHEN is_over THEN 'step-' || 100 * (1 + (place * 3) / GREATEST(1, %(rollouts)s)) ELSE '' END,
        CASE WHEN status <> 'completed' THEN NULL WHEN solved THEN 1.0 ELSE partial END,
        CASE WHEN status <> 'completed' THEN jsonb '{{}}' ELSE jsonb_build_object('correct', solved::int::float8,
            'format', floor(other * 4) / 4.0, 'brevity', round(luck::numeric, 2)::float8) END,
        CASE WHEN status <> 'completed' THEN '' WHEN other < 0.86 THEN 'answered' WHEN other < 0.94 THEN 'max_steps'
            WHEN other < 0.98 THEN 'max_output_tokens' ELSE 'time_limit' END,
        CASE WHEN status <> 'failed' THEN '' WHEN luck < 0.4 THEN 'policy_error' WHEN luck < 0.6 THEN 'timed_out'
            WHEN luck < 0.9 THEN 'environment_error' ELSE 'worker_lost' END,
        CASE WHEN status = 'failed' THEN 'The endpoint answered 503 four times: the server is overloaded.' ELSE '' END,
        CASE WHEN is_over THEN 2 + floor(other * 9) ELSE 0 END, CASE WHEN is_over THEN 1 + floor(other * 8) ELSE 0 END,
        CASE WHEN is_over THEN (luck > 0.9)::int ELSE 0 END,
        CASE WHEN is_over THEN 400 + floor(luck * 6000) ELSE 0 END,
        CASE WHEN is_over THEN 60 + floor(other * other * 4000) ELSE 0 END, 0, 0,
        CASE WHEN is_over THEN round((0.001 + luck * 0.02)::numeric, 5)::float8 ELSE 0 END,
        CASE WHEN is_over THEN 2 + luck * 40 ELSE 0 END, CASE WHEN is_over THEN 1.5 + luck * 36 ELSE 0 END,
        CASE WHEN is_over THEN 0.3 + other * 3 ELSE 0 END, CASE WHEN is_over THEN 0.05 + luck * 0.2 ELSE 0 END,
        CASE WHEN status <> 'completed' THEN jsonb '{{}}' ELSE jsonb_build_object(
            'search', jsonb_build_array(1 + floor(other * 5), (luck > 0.9)::int, round((other * 2)::numeric, 3)),
            'calculator', jsonb_build_array(1 + floor(luck * 3), 0, 0.01)) END,
        CASE WHEN status <> 'completed' THEN '' WHEN solved THEN (place %% 997)::text
            ELSE floor(luck * 6)::text END,
        CASE WHEN is_flagged THEN jsonb_build_object('bearer', 1) ELSE jsonb '{{}}' END, is_flagged,
        CASE WHEN is_over THEN %(began)s + place * interval '40 milliseconds' END,
        CASE WHEN is_over THEN %(began)s + place * interval '40 milliseconds' + interval '20 seconds' END{defaults}
    FROM (
        SELECT *, status IN ('completed', 'failed') AS is_over, status = 'completed' AND luck * 0.7 + 0.3 * other > hard
            AS solved, floor(other * 20) / 25.0 AS partial, status = 'completed' AND place %% 1500 = 7 AS is_flagged
        FROM (
            SELECT task_id, repeat, place, luck, other, hard, CASE
                WHEN place >= %(ended)s THEN %(rest)s WHEN chance < %(failing)s THEN 'failed' ELSE 'completed'
                END AS status
            FROM (
                SELECT t.id AS task_id, r AS repeat, t."index"::bigint * %(repeats)s + r AS place,
                    random() AS luck, random() AS other, random() AS chance,
                    (hashint4(t."index") & 1023) / 1023.0 * 1.2 - 0.1 AS hard
                FROM tasks_task t, generate_series(0, %(repeats)s - 1) r
                WHERE t.version_id = %(version)s ORDER BY t.id, r
            ) attempts
        ) outcomes
    ) rows
"""
COUNTERS = """
    UPDATE rollouts_collection c SET total = s.total, completed = s.completed, failed = s.failed,
        cancelled = s.cancelled, rewarded = s.rewarded, reward_sum = s.reward_sum, input_tokens = s.input_tokens,
        output_tokens = s.output_tokens, cost = s.cost, retried = s.retried
    FROM (
        SELECT COUNT(*) AS total, COUNT(*) FILTER (WHERE status = 'completed') AS completed,
            COUNT(*) FILTER (WHERE status = 'failed') AS failed,
            COUNT(*) FILTER (WHERE status = 'cancelled') AS cancelled, COUNT(reward) AS rewarded,
            COALESCE(SUM(reward), 0) AS reward_sum, SUM(input_tokens) AS input_tokens,
            SUM(output_tokens) AS output_tokens, SUM(cost) AS cost, SUM(failures) AS retried
        FROM rollouts_rollout WHERE collection_id = %(collection)s
    ) s WHERE c.id = %(collection)s
"""
TEMPLATE_EVENTS = """
    CREATE TEMPORARY TABLE filled_templates AS
    SELECT t.place, e.seq, e.kind, e.payload, e.tokens
    FROM (SELECT id, row_number() OVER (ORDER BY id) - 1 AS place FROM rollouts_rollout WHERE collection_id = %s) t
    JOIN rollouts_traceevent e ON e.rollout_id = t.id
"""
TRACES = """
    INSERT INTO rollouts_traceevent (rollout_id, attempt, seq, kind, payload, tokens)
    SELECT r.id, r.attempt, e.seq, e.kind, e.payload, e.tokens
    FROM rollouts_rollout r JOIN filled_templates e ON e.place = r.id %% %(templates)s
    WHERE r.collection_id = %(collection)s AND r.attempt > 0
        AND (hashint8(r.id) & 1023) * 1000 < %(share)s * 1024
"""
COMMENTS = """
    INSERT INTO reviews_comment (rollout_id, author_id, text, quote, created_at)
    SELECT id, %(user)s, 'It read the question too fast: the unit is wrong.', '', finished_at
    FROM rollouts_rollout WHERE finished_at IS NOT NULL AND id %% %(each)s = 0
"""
# Index rows of finished rollouts: the words of the task and the answer, and twelve of 20,000 words, some frequent and
# some rare. They are short, because a million full traces would measure something else.
WORDS = """
    INSERT INTO rollouts_rolloutwords (rollout_id, part, attempt, is_cut, document)
    SELECT r.id, 0, r.attempt, false, ('you:1 are:2 a:3 careful:4 assistant:5 task:7 ' || t."index"
        || ':8 what:9 is:10 ' || t."index" || ':11 7:12 calculator:14 the:16 answer:17 is:18 rollout' || r.id || ':19 '
        || 'v' || floor(20000 * random() ^ 4) || ':21 v' || floor(20000 * random() ^ 4) || ':22 '
        || 'v' || floor(20000 * random() ^ 4) || ':23 v' || floor(20000 * random() ^ 4) || ':24 '
        || 'v' || floor(20000 * random() ^ 4) || ':25 v' || floor(20000 * random() ^ 4) || ':26 '
        || 'v' || floor(20000 * random()) || ':27 v' || floor(20000 * random()) || ':28 '
        || 'v' || floor(20000 * random()) || ':29 v' || floor(20000 * random()) || ':30 '
        || CASE WHEN r.id %% 50000 = 7 THEN 'cannot:32 find:33 the:34 file:35 '
            WHEN r.id %% 40 = 0 THEN 'find:32 what:33 you:34 cannot:35 ' ELSE '' END
        || CASE WHEN r.id %% 1000 = 3 THEN '找:37 不:38 到:39 文:40 件:41' ELSE '' END)::tsvector
    FROM rollouts_rollout r JOIN tasks_task t ON t.id = r.task_id
    WHERE r.collection_id = %(collection)s AND r.attempt > 0 AND r.finished_at IS NOT NULL
"""
