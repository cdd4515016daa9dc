CREATE TABLE public.devices (
    id bigint NOT NULL,
    key character varying(32) NOT NULL,
    backend text NOT NULL,
    platform text NOT NULL,
    vendor text NOT NULL,
    name text NOT NULL,
    architecture text NOT NULL,
    driver text NOT NULL,
    kind text NOT NULL,
    compute_units bigint NOT NULL,
    memory_bytes bigint NOT NULL,
    extra text NOT NULL
);
CREATE TABLE public.kernels (
    id bigint NOT NULL,
    key character varying(32) NOT NULL,
    family text NOT NULL,
    name text NOT NULL,
    template_digest text NOT NULL
);
CREATE TABLE public.problems (
    id bigint NOT NULL,
    key character varying(32) NOT NULL,
    family text NOT NULL,
    params text NOT NULL
);
CREATE TABLE public.quarantine (
    id bigint NOT NULL,
    uid character varying(32) NOT NULL,
    device_id bigint NOT NULL,
    toolchain_id bigint NOT NULL,
    kernel_id bigint NOT NULL,
    problem_id bigint NOT NULL,
    config text NOT NULL,
    recorded text NOT NULL,
    config_digest character varying(32) NOT NULL,
    recorded_digest character varying(32) NOT NULL,
    status text NOT NULL,
    message text NOT NULL,
    extra text NOT NULL,
    created_at character varying(27) NOT NULL
);
CREATE TABLE public.toolchains (
    id bigint NOT NULL,
    key character varying(32) NOT NULL,
    compiler text NOT NULL,
    version text NOT NULL,
    options text NOT NULL
);
CREATE TABLE public.trials (
    id bigint NOT NULL,
    uid character varying(32) NOT NULL,
    run_id bigint NOT NULL,
    device_id bigint NOT NULL,
    toolchain_id bigint NOT NULL,
    kernel_id bigint NOT NULL,
    problem_id bigint NOT NULL,
    config text NOT NULL,
    config_digest character varying(32) NOT NULL,
    status text NOT NULL,
    message text NOT NULL,
    times text NOT NULL,
    median_s double precision,
    spread_s double precision,
    bytes_moved bigint,
    gbps double precision,
    roof_gbps double precision,
    roof_fraction double precision,
    registers bigint,
    spill_bytes bigint,
    shared_bytes bigint,
    compile_s double precision,
    energy_j double precision,
    round bigint NOT NULL,
    extra text NOT NULL,
    created_at character varying(27) NOT NULL
);
CREATE TABLE public.tuning_runs (
    id bigint NOT NULL,
    uuid character varying(32) NOT NULL,
    started character varying(27) NOT NULL,
    finished character varying(27),
    strategy text NOT NULL,
    budget text NOT NULL,
    seed bigint NOT NULL,
    host text NOT NULL,
    versions text NOT NULL,
    status text NOT NULL,
    extra text NOT NULL
);
CREATE VIEW public.all_trials AS
 SELECT trials.id,
    trials.created_at,
    tuning_runs.uuid AS run,
    devices.backend,
    devices.name AS device,
    devices.platform,
    devices.driver,
    toolchains.compiler,
    toolchains.version AS compiler_version,
    toolchains.options AS compiler_options,
    kernels.family,
    kernels.name AS kernel,
    kernels.template_digest,
    problems.params AS problem,
    trials.config,
    trials.status,
    trials.message,
    trials.median_s,
    trials.spread_s,
    trials.gbps,
    trials.roof_gbps,
    trials.roof_fraction,
    trials.energy_j,
    (EXISTS ( SELECT 1
           FROM public.quarantine
          WHERE ((quarantine.kernel_id = trials.kernel_id) AND (quarantine.device_id = trials.device_id) AND (quarantine.problem_id = trials.problem_id) AND (quarantine.toolchain_id = trials.toolchain_id) AND (((trials.config_digest)::text = (quarantine.config_digest)::text) OR ((trials.config_digest)::text = (quarantine.recorded_digest)::text))))) AS quarantined
   FROM (((((public.trials
     JOIN public.tuning_runs ON ((tuning_runs.id = trials.run_id)))
     JOIN public.devices ON ((devices.id = trials.device_id)))
     JOIN public.toolchains ON ((toolchains.id = trials.toolchain_id)))
     JOIN public.kernels ON ((kernels.id = trials.kernel_id)))
     JOIN public.problems ON ((problems.id = trials.problem_id)));
CREATE VIEW public.best_trials AS
 SELECT ranked.id,
    ranked.created_at,
    ranked.run,
    ranked.backend,
    ranked.device,
    ranked.platform,
    ranked.driver,
    ranked.compiler,
    ranked.compiler_version,
    ranked.compiler_options,
    ranked.family,
    ranked.kernel,
    ranked.template_digest,
    ranked.problem,
    ranked.config,
    ranked.status,
    ranked.message,
    ranked.median_s,
    ranked.spread_s,
    ranked.gbps,
    ranked.roof_gbps,
    ranked.roof_fraction,
    ranked.energy_j
   FROM ( SELECT all_trials.id,
            all_trials.created_at,
            all_trials.run,
            all_trials.backend,
            all_trials.device,
            all_trials.platform,
            all_trials.driver,
            all_trials.compiler,
            all_trials.compiler_version,
            all_trials.compiler_options,
            all_trials.family,
            all_trials.kernel,
            all_trials.template_digest,
            all_trials.problem,
            all_trials.config,
            all_trials.status,
            all_trials.message,
            all_trials.median_s,
            all_trials.spread_s,
            all_trials.gbps,
            all_trials.roof_gbps,
            all_trials.roof_fraction,
            all_trials.energy_j,
            all_trials.quarantined,
            row_number() OVER (PARTITION BY all_trials.backend, all_trials.device, all_trials.platform, all_trials.driver, all_trials.compiler, all_trials.compiler_version, all_trials.compiler_options, all_trials.family, all_trials.kernel, all_trials.template_digest, all_trials.problem ORDER BY all_trials.median_s, all_trials.id) AS place
           FROM public.all_trials
          WHERE ((all_trials.status = 'ok'::text) AND (NOT all_trials.quarantined) AND (all_trials.median_s IS NOT NULL))) ranked
  WHERE (ranked.place = 1);
CREATE TABLE public.device_roofs (
    id bigint NOT NULL,
    uid character varying(32) NOT NULL,
    run_id bigint NOT NULL,
    device_id bigint NOT NULL,
    kind text NOT NULL,
    row_bytes bigint,
    gbps double precision NOT NULL,
    measured_at character varying(27) NOT NULL
);
CREATE SEQUENCE public.device_roofs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.device_roofs_id_seq OWNED BY public.device_roofs.id;
CREATE SEQUENCE public.devices_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.devices_id_seq OWNED BY public.devices.id;
CREATE TABLE public.job_events (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    attempt bigint NOT NULL,
    kind text NOT NULL,
    data text NOT NULL,
    created_at character varying(27) NOT NULL
);
CREATE SEQUENCE public.job_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.job_events_id_seq OWNED BY public.job_events.id;
CREATE TABLE public.job_files (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    area text NOT NULL,
    name text NOT NULL,
    part bigint NOT NULL,
    data bytea NOT NULL
);
CREATE SEQUENCE public.job_files_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.job_files_id_seq OWNED BY public.job_files.id;
CREATE TABLE public.jobs (
    id bigint NOT NULL,
    uuid character varying(32) NOT NULL,
    request_key text,
    kind text NOT NULL,
    state text NOT NULL,
    payload text NOT NULL,
    inputs text NOT NULL,
    device text,
    attempt bigint NOT NULL,
    losses bigint NOT NULL,
    max_losses bigint NOT NULL,
    worker text,
    lease_until character varying(27),
    cancel_at character varying(27),
    checkpoint text,
    progress text,
    result text,
    outputs text NOT NULL,
    error text,
    created_at character varying(27) NOT NULL,
    started_at character varying(27),
    finished_at character varying(27)
);
CREATE SEQUENCE public.jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.jobs_id_seq OWNED BY public.jobs.id;
CREATE SEQUENCE public.kernels_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.kernels_id_seq OWNED BY public.kernels.id;
CREATE TABLE public.mmsbgen_schema (
    version_num character varying(32) NOT NULL
);
CREATE SEQUENCE public.problems_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.problems_id_seq OWNED BY public.problems.id;
CREATE SEQUENCE public.quarantine_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.quarantine_id_seq OWNED BY public.quarantine.id;
CREATE SEQUENCE public.toolchains_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.toolchains_id_seq OWNED BY public.toolchains.id;
CREATE SEQUENCE public.trials_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trials_id_seq OWNED BY public.trials.id;
CREATE SEQUENCE public.tuning_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.tuning_runs_id_seq OWNED BY public.tuning_runs.id;
ALTER TABLE ONLY public.device_roofs ALTER COLUMN id SET DEFAULT nextval('public.device_roofs_id_seq'::regclass);
ALTER TABLE ONLY public.devices ALTER COLUMN id SET DEFAULT nextval('public.devices_id_seq'::regclass);
ALTER TABLE ONLY public.job_events ALTER COLUMN id SET DEFAULT nextval('public.job_events_id_seq'::regclass);
ALTER TABLE ONLY public.job_files ALTER COLUMN id SET DEFAULT nextval('public.job_files_id_seq'::regclass);
ALTER TABLE ONLY public.jobs ALTER COLUMN id SET DEFAULT nextval('public.jobs_id_seq'::regclass);
ALTER TABLE ONLY public.kernels ALTER COLUMN id SET DEFAULT nextval('public.kernels_id_seq'::regclass);
ALTER TABLE ONLY public.problems ALTER COLUMN id SET DEFAULT nextval('public.problems_id_seq'::regclass);
ALTER TABLE ONLY public.quarantine ALTER COLUMN id SET DEFAULT nextval('public.quarantine_id_seq'::regclass);
ALTER TABLE ONLY public.toolchains ALTER COLUMN id SET DEFAULT nextval('public.toolchains_id_seq'::regclass);
ALTER TABLE ONLY public.trials ALTER COLUMN id SET DEFAULT nextval('public.trials_id_seq'::regclass);
ALTER TABLE ONLY public.tuning_runs ALTER COLUMN id SET DEFAULT nextval('public.tuning_runs_id_seq'::regclass);
INSERT INTO public.device_roofs VALUES (1, '806de97de76cba8f463e5c2e736800f4', 1, 1, 'gather', 4096, 4323, '2026-11-20T10:00:05.000000Z');
INSERT INTO public.devices VALUES (1, '5b9ebfbd946daad9dc3ce10742d24824', 'cuda', 'CUDA', 'NVIDIA', 'H200', 'sm_90', '580.1', 'gpu', 132, 137438953472, '{}');
INSERT INTO public.devices VALUES (2, '546d58ad56ff38ad0d55f2f5b97b538c', 'cuda', 'CUDA', 'NVIDIA', 'H200', 'sm_90', '1', 'gpu', 132, 137438953472, '{}');
INSERT INTO public.job_events VALUES (1, 1, 0, 'state', '{"state":"queued"}', '2026-11-26T08:49:44.090754Z');
INSERT INTO public.job_events VALUES (2, 1, 1, 'state', '{"lease_s":60.0,"state":"running","worker":"a worker"}', '2026-11-26T08:49:44.127467Z');
INSERT INTO public.job_events VALUES (3, 1, 1, 'state', '{"state":"done"}', '2026-11-26T08:49:44.137677Z');
INSERT INTO public.job_events VALUES (4, 2, 0, 'state', '{"state":"queued"}', '2026-11-26T08:49:44.144417Z');
INSERT INTO public.job_events VALUES (5, 2, 1, 'state', '{"lease_s":60.0,"state":"running","worker":"a worker"}', '2026-11-26T08:49:44.155831Z');
INSERT INTO public.job_events VALUES (6, 2, 1, 'state', '{"state":"queued","why":"its worker was ended"}', '2026-11-26T08:49:44.164237Z');
INSERT INTO public.job_files VALUES (3, 1, 'output', 'graph', 0, '\x3120320a3220330a');
INSERT INTO public.job_files VALUES (4, 1, 'output', 'graph', 1, '\x3120330a');
INSERT INTO public.job_files VALUES (5, 1, 'output', 'communities.txt', 0, '\x31093209330a');
INSERT INTO public.job_files VALUES (6, 2, 'input', 'graph', 0, '\x3120320a3220330a');
INSERT INTO public.job_files VALUES (7, 2, 'input', 'graph', 1, '\x3320340a3420350a');
INSERT INTO public.job_files VALUES (8, 2, 'checkpoint', 'checkpoint.npz', 0, '\x6e6f742071756974');
INSERT INTO public.job_files VALUES (9, 2, 'checkpoint', 'checkpoint.npz', 1, '\x6520612063686563');
INSERT INTO public.job_files VALUES (10, 2, 'checkpoint', 'checkpoint.npz', 2, '\x6b706f696e74');
INSERT INTO public.jobs VALUES (1, '0bd6227803dd4c7c91bc03bba6025f4c', NULL, 'detect', 'done', '{"n_communities":2}', '{"graph":{"bytes":12,"sha256":"58fd2a452009d566f22576abc4ff439e0363bfc01dcce1c167c92d02b30f4e97"}}', NULL, 1, 0, 3, 'a worker', NULL, NULL, NULL, NULL, '{"communities":1}', '{"communities.txt":{"bytes":6,"sha256":"a19e5ae584bdab4b2c57351357a8b54f9ba5208e0d35c5ca312884f578e800f8"},"graph":{"bytes":12,"sha256":"58fd2a452009d566f22576abc4ff439e0363bfc01dcce1c167c92d02b30f4e97"}}', NULL, '2026-11-26T08:49:44.090754Z', '2026-11-26T08:49:44.127467Z', '2026-11-26T08:49:44.137677Z');
INSERT INTO public.jobs VALUES (2, '137cebe455394286ac8b6109792b9a81', 'once', 'detect', 'queued', '{"n_communities":2}', '{"graph":{"bytes":16,"sha256":"47315b44c5e1b54a300203789ce8ec0675f77eb76c26441d0633f399f8ee232f"}}', NULL, 1, 0, 3, 'a worker', NULL, NULL, '{"checkpoint.npz":{"bytes":22,"sha256":"f66eb89edac8e61ec3a438961049346db4ed514f447856171932cf8003368a19"}}', NULL, NULL, '{}', 'its worker was ended', '2026-11-26T08:49:44.144417Z', '2026-11-26T08:49:44.155831Z', NULL);
INSERT INTO public.kernels VALUES (1, '9b75f05aabed6e67347f287357c3f790', 'rows', 'gather', 'aaaa');
INSERT INTO public.mmsbgen_schema VALUES ('0004');
INSERT INTO public.problems VALUES (1, '24d7596ec952ff1d2e9706556efa0d22', 'rows', '{"count":4096,"dtype":"float32","width":1024}');
INSERT INTO public.quarantine VALUES (1, '447aeef472f91c4e3df1fc782825c1d4', 1, 1, 1, 1, '{"block":32,"unroll":4}', '{"block":32}', '5ab7ccd7b19b361ccc35d8437985032c', '14ee3026f2dc839a7de766b422a94215', 'launch_error', 'refusé', '{"who":"test"}', '2026-11-21T09:00:00.000000Z');
INSERT INTO public.toolchains VALUES (1, '126e42ce20158f262242aa202a2ef9c3', 'nvrtc', '13.0', '-O3');
INSERT INTO public.trials VALUES (1, '70962ffc88fdcab7d175e6ba5ab0821c', 1, 1, 1, 1, 1, '{"block":64}', 'aeb36233f06459d050ed0a254ff3f824', 'ok', '', '[0.001]', 0.001, NULL, 1000000000, 1000, 2000, 0.5, 40, NULL, NULL, NULL, 0.5, 0, '{}', '2026-11-20T10:00:01.000000Z');
INSERT INTO public.trials VALUES (2, '822003bbba3240dd95bf821401d34595', 1, 1, 1, 1, 1, '{"block":32}', '14ee3026f2dc839a7de766b422a94215', 'ok', '', '[0.002]', 0.002, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, '{"batch":4}', '2026-11-20T10:00:02.000000Z');
INSERT INTO public.trials VALUES (3, '600eb6352835a3a1016cccffd656af62', 1, 1, 1, 1, 1, '{"block":16}', 'ecc2177a89e5e16f2b6a48a3591def38', 'compile_error', 'näh; it''s wrong', '[]', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, '{}', '2026-11-20T10:00:03.000000Z');
INSERT INTO public.trials VALUES (4, 'f56f65622d87f2afa96864a2c4658f44', 1, 2, 1, 1, 1, '{"block":64}', 'aeb36233f06459d050ed0a254ff3f824', 'ok', '', '[0.001]', 0.001, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, '{}', '2026-11-20T10:00:04.000000Z');
INSERT INTO public.tuning_runs VALUES (1, '00000000000000000000000000000001', '2026-11-20T10:00:00.000000Z', '2026-11-20T11:00:00.000000Z', 'exhaustive', '{"trials":3}', 7, '', '{"python":"3.11"}', 'finished', '{}');
SELECT pg_catalog.setval('public.device_roofs_id_seq', 1, true);
SELECT pg_catalog.setval('public.devices_id_seq', 2, true);
SELECT pg_catalog.setval('public.job_events_id_seq', 6, true);
SELECT pg_catalog.setval('public.job_files_id_seq', 10, true);
SELECT pg_catalog.setval('public.jobs_id_seq', 2, true);
SELECT pg_catalog.setval('public.kernels_id_seq', 1, true);
SELECT pg_catalog.setval('public.problems_id_seq', 1, true);
SELECT pg_catalog.setval('public.quarantine_id_seq', 1, true);
SELECT pg_catalog.setval('public.toolchains_id_seq', 1, true);
SELECT pg_catalog.setval('public.trials_id_seq', 4, true);
SELECT pg_catalog.setval('public.tuning_runs_id_seq', 1, true);
ALTER TABLE ONLY public.mmsbgen_schema
    ADD CONSTRAINT mmsbgen_schema_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.device_roofs
    ADD CONSTRAINT pk_device_roofs PRIMARY KEY (id);
ALTER TABLE ONLY public.devices
    ADD CONSTRAINT pk_devices PRIMARY KEY (id);
ALTER TABLE ONLY public.job_events
    ADD CONSTRAINT pk_job_events PRIMARY KEY (id);
ALTER TABLE ONLY public.job_files
    ADD CONSTRAINT pk_job_files PRIMARY KEY (id);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT pk_jobs PRIMARY KEY (id);
ALTER TABLE ONLY public.kernels
    ADD CONSTRAINT pk_kernels PRIMARY KEY (id);
ALTER TABLE ONLY public.problems
    ADD CONSTRAINT pk_problems PRIMARY KEY (id);
ALTER TABLE ONLY public.quarantine
    ADD CONSTRAINT pk_quarantine PRIMARY KEY (id);
ALTER TABLE ONLY public.toolchains
    ADD CONSTRAINT pk_toolchains PRIMARY KEY (id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT pk_trials PRIMARY KEY (id);
ALTER TABLE ONLY public.tuning_runs
    ADD CONSTRAINT pk_tuning_runs PRIMARY KEY (id);
ALTER TABLE ONLY public.device_roofs
    ADD CONSTRAINT uq_device_roofs_uid UNIQUE (uid);
ALTER TABLE ONLY public.devices
    ADD CONSTRAINT uq_devices_key UNIQUE (key);
ALTER TABLE ONLY public.job_files
    ADD CONSTRAINT uq_job_files_job_id_area_name_part UNIQUE (job_id, area, name, part);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT uq_jobs_request_key UNIQUE (request_key);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT uq_jobs_uuid UNIQUE (uuid);
ALTER TABLE ONLY public.kernels
    ADD CONSTRAINT uq_kernels_key UNIQUE (key);
ALTER TABLE ONLY public.problems
    ADD CONSTRAINT uq_problems_key UNIQUE (key);
ALTER TABLE ONLY public.quarantine
    ADD CONSTRAINT uq_quarantine_uid UNIQUE (uid);
ALTER TABLE ONLY public.toolchains
    ADD CONSTRAINT uq_toolchains_key UNIQUE (key);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT uq_trials_uid UNIQUE (uid);
ALTER TABLE ONLY public.tuning_runs
    ADD CONSTRAINT uq_tuning_runs_uuid UNIQUE (uuid);
CREATE INDEX ix_device_roofs_device_id ON public.device_roofs USING btree (device_id);
CREATE INDEX ix_device_roofs_run_id ON public.device_roofs USING btree (run_id);
CREATE INDEX ix_job_events_job_id_id ON public.job_events USING btree (job_id, id);
CREATE INDEX ix_jobs_state_id ON public.jobs USING btree (state, id);
CREATE INDEX ix_kernels_family_name ON public.kernels USING btree (family, name);
CREATE INDEX ix_quarantine_kernel_id_device_id_problem_id ON public.quarantine USING btree (kernel_id, device_id, problem_id);
CREATE INDEX ix_trials_created_at ON public.trials USING btree (created_at);
CREATE INDEX ix_trials_kernel_id_device_id_problem_id ON public.trials USING btree (kernel_id, device_id, problem_id);
CREATE INDEX ix_trials_run_id_config_digest ON public.trials USING btree (run_id, config_digest);
ALTER TABLE ONLY public.device_roofs
    ADD CONSTRAINT fk_device_roofs_device_id FOREIGN KEY (device_id) REFERENCES public.devices(id);
ALTER TABLE ONLY public.device_roofs
    ADD CONSTRAINT fk_device_roofs_run_id FOREIGN KEY (run_id) REFERENCES public.tuning_runs(id);
ALTER TABLE ONLY public.job_events
    ADD CONSTRAINT fk_job_events_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.job_files
    ADD CONSTRAINT fk_job_files_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.quarantine
    ADD CONSTRAINT fk_quarantine_device_id FOREIGN KEY (device_id) REFERENCES public.devices(id);
ALTER TABLE ONLY public.quarantine
    ADD CONSTRAINT fk_quarantine_kernel_id FOREIGN KEY (kernel_id) REFERENCES public.kernels(id);
ALTER TABLE ONLY public.quarantine
    ADD CONSTRAINT fk_quarantine_problem_id FOREIGN KEY (problem_id) REFERENCES public.problems(id);
ALTER TABLE ONLY public.quarantine
    ADD CONSTRAINT fk_quarantine_toolchain_id FOREIGN KEY (toolchain_id) REFERENCES public.toolchains(id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT fk_trials_device_id FOREIGN KEY (device_id) REFERENCES public.devices(id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT fk_trials_kernel_id FOREIGN KEY (kernel_id) REFERENCES public.kernels(id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT fk_trials_problem_id FOREIGN KEY (problem_id) REFERENCES public.problems(id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT fk_trials_run_id FOREIGN KEY (run_id) REFERENCES public.tuning_runs(id);
ALTER TABLE ONLY public.trials
    ADD CONSTRAINT fk_trials_toolchain_id FOREIGN KEY (toolchain_id) REFERENCES public.toolchains(id);
