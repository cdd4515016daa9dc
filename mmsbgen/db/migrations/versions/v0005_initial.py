"""The first schema: all tables, and views for people who ask by SQL.

The views have all trials with their keys in words, and the fastest one of each key.  Databases of four older schemas
were made before the first release.  The next migration must write out the tables here, as they are now.
"""

from __future__ import annotations

from alembic import op

from mmsbgen.db.store.schema import METADATA

revision = "0005"
down_revision = None

_ALL = """
CREATE VIEW all_trials AS
SELECT trials.id, trials.created_at, tuning_runs.uuid AS run,
    devices.backend, devices.name AS device, devices.platform, devices.driver,
    toolchains.compiler, toolchains.version AS compiler_version, toolchains.options AS compiler_options,
    kernels.family, kernels.name AS kernel, kernels.template_digest,
    problems.params AS problem, trials.config, trials.status, trials.message,
    trials.median_s, trials.spread_s, trials.gbps, trials.roof_gbps, trials.roof_fraction, trials.energy_j,
    EXISTS (
        SELECT 1 FROM quarantine
        WHERE quarantine.kernel_id = trials.kernel_id AND quarantine.device_id = trials.device_id
            AND quarantine.problem_id = trials.problem_id AND quarantine.toolchain_id = trials.toolchain_id
            AND trials.config_digest IN (quarantine.config_digest, quarantine.recorded_digest)
    ) AS quarantined
FROM trials
JOIN tuning_runs ON tuning_runs.id = trials.run_id
JOIN devices ON devices.id = trials.device_id
JOIN toolchains ON toolchains.id = trials.toolchain_id
JOIN kernels ON kernels.id = trials.kernel_id
JOIN problems ON problems.id = trials.problem_id
"""
_COLUMNS = """
    id, created_at, run, backend, device, platform, driver, compiler, compiler_version, compiler_options, family,
    kernel, template_digest, problem, config, status, message, median_s, spread_s, gbps, roof_gbps,
    roof_fraction, energy_j
"""
_BEST = f"""
CREATE VIEW best_trials AS
SELECT {_COLUMNS} FROM (
    SELECT all_trials.*, row_number() OVER (
        PARTITION BY backend, device, platform, driver, compiler, compiler_version, compiler_options, family, kernel,
            template_digest, problem
        ORDER BY median_s, id
    ) AS place
    FROM all_trials WHERE status = 'ok' AND NOT quarantined AND median_s IS NOT NULL
) AS ranked WHERE place = 1
"""


def upgrade() -> None:
    """Create the tables and the views."""
    METADATA.create_all(op.get_bind())
    op.execute(_ALL)
    op.execute(_BEST)
