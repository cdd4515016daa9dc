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
CREATE TABLE public.kernels (
    id bigint NOT NULL,
    key character varying(32) NOT NULL,
    family text NOT NULL,
    name text NOT NULL,
    template_digest text NOT NULL
);
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
CREATE TABLE public.problems (
    id bigint NOT NULL,
    key character varying(32) NOT NULL,
    family text NOT NULL,
    params text NOT NULL
);
CREATE SEQUENCE public.problems_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.problems_id_seq OWNED BY public.problems.id;
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
CREATE SEQUENCE public.quarantine_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.quarantine_id_seq OWNED BY public.quarantine.id;
CREATE TABLE public.toolchains (
    id bigint NOT NULL,
    key character varying(32) NOT NULL,
    compiler text NOT NULL,
    version text NOT NULL,
    options text NOT NULL
);
CREATE SEQUENCE public.toolchains_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.toolchains_id_seq OWNED BY public.toolchains.id;
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
CREATE SEQUENCE public.trials_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.trials_id_seq OWNED BY public.trials.id;
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
INSERT INTO public.kernels VALUES (1, '9b75f05aabed6e67347f287357c3f790', 'rows', 'gather', 'aaaa');
INSERT INTO public.mmsbgen_schema VALUES ('0003');
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
SELECT pg_catalog.setval('public.job_events_id_seq', 1, false);
SELECT pg_catalog.setval('public.job_files_id_seq', 1, false);
SELECT pg_catalog.setval('public.jobs_id_seq', 1, false);
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
