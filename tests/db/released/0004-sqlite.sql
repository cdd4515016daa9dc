BEGIN TRANSACTION;
CREATE TABLE device_roofs (
	id INTEGER NOT NULL, 
	uid VARCHAR(32) NOT NULL, 
	run_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	row_bytes BIGINT, 
	gbps DOUBLE NOT NULL, 
	measured_at VARCHAR(27) NOT NULL, 
	CONSTRAINT pk_device_roofs PRIMARY KEY (id), 
	CONSTRAINT fk_device_roofs_device_id FOREIGN KEY(device_id) REFERENCES devices (id), 
	CONSTRAINT fk_device_roofs_run_id FOREIGN KEY(run_id) REFERENCES tuning_runs (id), 
	CONSTRAINT uq_device_roofs_uid UNIQUE (uid)
);
INSERT INTO "device_roofs" VALUES(1,'806de97de76cba8f463e5c2e736800f4',1,1,'gather',4096,4323.0,'2026-11-20T10:00:05.000000Z');
CREATE TABLE devices (
	id INTEGER NOT NULL, 
	"key" VARCHAR(32) NOT NULL, 
	backend TEXT NOT NULL, 
	platform TEXT NOT NULL, 
	vendor TEXT NOT NULL, 
	name TEXT NOT NULL, 
	architecture TEXT NOT NULL, 
	driver TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	compute_units BIGINT NOT NULL, 
	memory_bytes BIGINT NOT NULL, 
	extra TEXT NOT NULL, 
	CONSTRAINT pk_devices PRIMARY KEY (id), 
	CONSTRAINT uq_devices_key UNIQUE ("key")
);
INSERT INTO "devices" VALUES(1,'5b9ebfbd946daad9dc3ce10742d24824','cuda','CUDA','NVIDIA','H200','sm_90','580.1','gpu',132,137438953472,'{}');
INSERT INTO "devices" VALUES(2,'546d58ad56ff38ad0d55f2f5b97b538c','cuda','CUDA','NVIDIA','H200','sm_90','1','gpu',132,137438953472,'{}');
CREATE TABLE job_events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id INTEGER NOT NULL, 
	attempt BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	data TEXT NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	CONSTRAINT fk_job_events_job_id FOREIGN KEY(job_id) REFERENCES jobs (id)
);
INSERT INTO "job_events" VALUES(1,1,0,'state','{"state":"queued"}','2026-11-26T08:49:43.856904Z');
INSERT INTO "job_events" VALUES(2,1,1,'state','{"lease_s":60.0,"state":"running","worker":"a worker"}','2026-11-26T08:49:43.890652Z');
INSERT INTO "job_events" VALUES(3,1,1,'state','{"state":"done"}','2026-11-26T08:49:43.897627Z');
INSERT INTO "job_events" VALUES(4,2,0,'state','{"state":"queued"}','2026-11-26T08:49:43.902752Z');
INSERT INTO "job_events" VALUES(5,2,1,'state','{"lease_s":60.0,"state":"running","worker":"a worker"}','2026-11-26T08:49:43.909451Z');
INSERT INTO "job_events" VALUES(6,2,1,'state','{"state":"queued","why":"its worker was ended"}','2026-11-26T08:49:43.914868Z');
CREATE TABLE job_files (
	id INTEGER NOT NULL, 
	job_id INTEGER NOT NULL, 
	area TEXT NOT NULL, 
	name TEXT NOT NULL, 
	part BIGINT NOT NULL, 
	data BLOB NOT NULL, 
	CONSTRAINT pk_job_files PRIMARY KEY (id), 
	CONSTRAINT fk_job_files_job_id FOREIGN KEY(job_id) REFERENCES jobs (id), 
	CONSTRAINT uq_job_files_job_id_area_name_part UNIQUE (job_id, area, name, part)
);
INSERT INTO "job_files" VALUES(3,1,'output','graph',0,X'3120320A3220330A');
INSERT INTO "job_files" VALUES(4,1,'output','graph',1,X'3120330A');
INSERT INTO "job_files" VALUES(5,1,'output','communities.txt',0,X'31093209330A');
INSERT INTO "job_files" VALUES(6,2,'input','graph',0,X'3120320A3220330A');
INSERT INTO "job_files" VALUES(7,2,'input','graph',1,X'3320340A3420350A');
INSERT INTO "job_files" VALUES(8,2,'checkpoint','checkpoint.npz',0,X'6E6F742071756974');
INSERT INTO "job_files" VALUES(9,2,'checkpoint','checkpoint.npz',1,X'6520612063686563');
INSERT INTO "job_files" VALUES(10,2,'checkpoint','checkpoint.npz',2,X'6B706F696E74');
CREATE TABLE jobs (
	id INTEGER NOT NULL, 
	uuid VARCHAR(32) NOT NULL, 
	request_key TEXT, 
	kind TEXT NOT NULL, 
	state TEXT NOT NULL, 
	payload TEXT NOT NULL, 
	inputs TEXT NOT NULL, 
	device TEXT, 
	attempt BIGINT NOT NULL, 
	losses BIGINT NOT NULL, 
	max_losses BIGINT NOT NULL, 
	worker TEXT, 
	lease_until VARCHAR(27), 
	cancel_at VARCHAR(27), 
	checkpoint TEXT, 
	progress TEXT, 
	result TEXT, 
	outputs TEXT NOT NULL, 
	error TEXT, 
	created_at VARCHAR(27) NOT NULL, 
	started_at VARCHAR(27), 
	finished_at VARCHAR(27), 
	CONSTRAINT pk_jobs PRIMARY KEY (id), 
	CONSTRAINT uq_jobs_uuid UNIQUE (uuid), 
	CONSTRAINT uq_jobs_request_key UNIQUE (request_key)
);
INSERT INTO "jobs" VALUES(1,'4a402fe1c6ea42c09de49a3c67e257e3',NULL,'detect','done','{"n_communities":2}','{"graph":{"bytes":12,"sha256":"58fd2a452009d566f22576abc4ff439e0363bfc01dcce1c167c92d02b30f4e97"}}',NULL,1,0,3,'a worker',NULL,NULL,NULL,NULL,'{"communities":1}','{"communities.txt":{"bytes":6,"sha256":"a19e5ae584bdab4b2c57351357a8b54f9ba5208e0d35c5ca312884f578e800f8"},"graph":{"bytes":12,"sha256":"58fd2a452009d566f22576abc4ff439e0363bfc01dcce1c167c92d02b30f4e97"}}',NULL,'2026-11-26T08:49:43.856904Z','2026-11-26T08:49:43.890652Z','2026-11-26T08:49:43.897627Z');
INSERT INTO "jobs" VALUES(2,'e5713f572aa14dc4914a7fc28405f092','once','detect','queued','{"n_communities":2}','{"graph":{"bytes":16,"sha256":"47315b44c5e1b54a300203789ce8ec0675f77eb76c26441d0633f399f8ee232f"}}',NULL,1,0,3,'a worker',NULL,NULL,'{"checkpoint.npz":{"bytes":22,"sha256":"f66eb89edac8e61ec3a438961049346db4ed514f447856171932cf8003368a19"}}',NULL,NULL,'{}','its worker was ended','2026-11-26T08:49:43.902752Z','2026-11-26T08:49:43.909451Z',NULL);
CREATE TABLE kernels (
	id INTEGER NOT NULL, 
	"key" VARCHAR(32) NOT NULL, 
	family TEXT NOT NULL, 
	name TEXT NOT NULL, 
	template_digest TEXT NOT NULL, 
	CONSTRAINT pk_kernels PRIMARY KEY (id), 
	CONSTRAINT uq_kernels_key UNIQUE ("key")
);
INSERT INTO "kernels" VALUES(1,'9b75f05aabed6e67347f287357c3f790','rows','gather','aaaa');
CREATE TABLE mmsbgen_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT mmsbgen_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "mmsbgen_schema" VALUES('0004');
CREATE TABLE problems (
	id INTEGER NOT NULL, 
	"key" VARCHAR(32) NOT NULL, 
	family TEXT NOT NULL, 
	params TEXT NOT NULL, 
	CONSTRAINT pk_problems PRIMARY KEY (id), 
	CONSTRAINT uq_problems_key UNIQUE ("key")
);
INSERT INTO "problems" VALUES(1,'24d7596ec952ff1d2e9706556efa0d22','rows','{"count":4096,"dtype":"float32","width":1024}');
CREATE TABLE quarantine (
	id INTEGER NOT NULL, 
	uid VARCHAR(32) NOT NULL, 
	device_id INTEGER NOT NULL, 
	toolchain_id INTEGER NOT NULL, 
	kernel_id INTEGER NOT NULL, 
	problem_id INTEGER NOT NULL, 
	config TEXT NOT NULL, 
	recorded TEXT NOT NULL, 
	config_digest VARCHAR(32) NOT NULL, 
	recorded_digest VARCHAR(32) NOT NULL, 
	status TEXT NOT NULL, 
	message TEXT NOT NULL, 
	extra TEXT NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	CONSTRAINT pk_quarantine PRIMARY KEY (id), 
	CONSTRAINT fk_quarantine_device_id FOREIGN KEY(device_id) REFERENCES devices (id), 
	CONSTRAINT fk_quarantine_kernel_id FOREIGN KEY(kernel_id) REFERENCES kernels (id), 
	CONSTRAINT fk_quarantine_problem_id FOREIGN KEY(problem_id) REFERENCES problems (id), 
	CONSTRAINT fk_quarantine_toolchain_id FOREIGN KEY(toolchain_id) REFERENCES toolchains (id), 
	CONSTRAINT uq_quarantine_uid UNIQUE (uid)
);
INSERT INTO "quarantine" VALUES(1,'447aeef472f91c4e3df1fc782825c1d4',1,1,1,1,'{"block":32,"unroll":4}','{"block":32}','5ab7ccd7b19b361ccc35d8437985032c','14ee3026f2dc839a7de766b422a94215','launch_error','refusé','{"who":"test"}','2026-11-21T09:00:00.000000Z');
CREATE TABLE toolchains (
	id INTEGER NOT NULL, 
	"key" VARCHAR(32) NOT NULL, 
	compiler TEXT NOT NULL, 
	version TEXT NOT NULL, 
	options TEXT NOT NULL, 
	CONSTRAINT pk_toolchains PRIMARY KEY (id), 
	CONSTRAINT uq_toolchains_key UNIQUE ("key")
);
INSERT INTO "toolchains" VALUES(1,'126e42ce20158f262242aa202a2ef9c3','nvrtc','13.0','-O3');
CREATE TABLE trials (
	id INTEGER NOT NULL, 
	uid VARCHAR(32) NOT NULL, 
	run_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	toolchain_id INTEGER NOT NULL, 
	kernel_id INTEGER NOT NULL, 
	problem_id INTEGER NOT NULL, 
	config TEXT NOT NULL, 
	config_digest VARCHAR(32) NOT NULL, 
	status TEXT NOT NULL, 
	message TEXT NOT NULL, 
	times TEXT NOT NULL, 
	median_s DOUBLE, 
	spread_s DOUBLE, 
	bytes_moved BIGINT, 
	gbps DOUBLE, 
	roof_gbps DOUBLE, 
	roof_fraction DOUBLE, 
	registers BIGINT, 
	spill_bytes BIGINT, 
	shared_bytes BIGINT, 
	compile_s DOUBLE, 
	energy_j DOUBLE, 
	round BIGINT NOT NULL, 
	extra TEXT NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	CONSTRAINT pk_trials PRIMARY KEY (id), 
	CONSTRAINT fk_trials_device_id FOREIGN KEY(device_id) REFERENCES devices (id), 
	CONSTRAINT fk_trials_kernel_id FOREIGN KEY(kernel_id) REFERENCES kernels (id), 
	CONSTRAINT fk_trials_problem_id FOREIGN KEY(problem_id) REFERENCES problems (id), 
	CONSTRAINT fk_trials_run_id FOREIGN KEY(run_id) REFERENCES tuning_runs (id), 
	CONSTRAINT fk_trials_toolchain_id FOREIGN KEY(toolchain_id) REFERENCES toolchains (id), 
	CONSTRAINT uq_trials_uid UNIQUE (uid)
);
INSERT INTO "trials" VALUES(1,'70962ffc88fdcab7d175e6ba5ab0821c',1,1,1,1,1,'{"block":64}','aeb36233f06459d050ed0a254ff3f824','ok','','[0.001]',0.001,NULL,1000000000,1000.0,2000.0,0.5,40,NULL,NULL,NULL,0.5,0,'{}','2026-11-20T10:00:01.000000Z');
INSERT INTO "trials" VALUES(2,'822003bbba3240dd95bf821401d34595',1,1,1,1,1,'{"block":32}','14ee3026f2dc839a7de766b422a94215','ok','','[0.002]',0.002,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'{"batch":4}','2026-11-20T10:00:02.000000Z');
INSERT INTO "trials" VALUES(3,'600eb6352835a3a1016cccffd656af62',1,1,1,1,1,'{"block":16}','ecc2177a89e5e16f2b6a48a3591def38','compile_error','näh; it''s wrong','[]',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'{}','2026-11-20T10:00:03.000000Z');
INSERT INTO "trials" VALUES(4,'f56f65622d87f2afa96864a2c4658f44',1,2,1,1,1,'{"block":64}','aeb36233f06459d050ed0a254ff3f824','ok','','[0.001]',0.001,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,'{}','2026-11-20T10:00:04.000000Z');
CREATE TABLE tuning_runs (
	id INTEGER NOT NULL, 
	uuid VARCHAR(32) NOT NULL, 
	started VARCHAR(27) NOT NULL, 
	finished VARCHAR(27), 
	strategy TEXT NOT NULL, 
	budget TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	host TEXT NOT NULL, 
	versions TEXT NOT NULL, 
	status TEXT NOT NULL, 
	extra TEXT NOT NULL, 
	CONSTRAINT pk_tuning_runs PRIMARY KEY (id), 
	CONSTRAINT uq_tuning_runs_uuid UNIQUE (uuid)
);
INSERT INTO "tuning_runs" VALUES(1,'00000000000000000000000000000001','2026-11-20T10:00:00.000000Z','2026-11-20T11:00:00.000000Z','exhaustive','{"trials":3}',7,'','{"python":"3.11"}','finished','{}');
CREATE INDEX ix_kernels_family_name ON kernels (family, name);
CREATE INDEX ix_device_roofs_device_id ON device_roofs (device_id);
CREATE INDEX ix_device_roofs_run_id ON device_roofs (run_id);
CREATE INDEX ix_trials_created_at ON trials (created_at);
CREATE INDEX ix_trials_kernel_id_device_id_problem_id ON trials (kernel_id, device_id, problem_id);
CREATE INDEX ix_trials_run_id_config_digest ON trials (run_id, config_digest);
CREATE INDEX ix_quarantine_kernel_id_device_id_problem_id ON quarantine (kernel_id, device_id, problem_id);
CREATE INDEX ix_jobs_state_id ON jobs (state, id);
CREATE INDEX ix_job_events_job_id_id ON job_events (job_id, id);
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
JOIN problems ON problems.id = trials.problem_id;
CREATE VIEW best_trials AS
SELECT 
    id, created_at, run, backend, device, platform, driver, compiler, compiler_version, compiler_options, family,
    kernel, template_digest, problem, config, status, message, median_s, spread_s, gbps, roof_gbps,
    roof_fraction, energy_j
 FROM (
    SELECT all_trials.*, row_number() OVER (
        PARTITION BY backend, device, platform, driver, compiler, compiler_version, compiler_options, family, kernel,
            template_digest, problem
        ORDER BY median_s, id
    ) AS place
    FROM all_trials WHERE status = 'ok' AND NOT quarantined AND median_s IS NOT NULL
) AS ranked WHERE place = 1;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('job_events',6);
COMMIT;
