"""Every SGLang name that `voice_runtime/sglang_backend/` names. A new or an unused name fails test_sglang_names.py.

Pinned: sglang 0.5.15.post1. Grows only in review; fewer is better.
"""

IMPORTED = {
    "sglang.srt.managers.io_struct.AbortReq",
    "sglang.srt.managers.io_struct.BatchTokenIDOutput",
    "sglang.srt.managers.io_struct.TokenizedGenerateReqInput",
    "sglang.srt.managers.scheduler.Scheduler",
    "sglang.srt.sampling.sampling_params.SamplingParams",
    "sglang.srt.server_args.PortArgs",
    "sglang.srt.server_args.ServerArgs",
    "sglang.srt.server_args.set_global_server_args_for_scheduler",
}

OVERRIDDEN = {"Scheduler.init_ipc_channels"}

CALLED = {
    "PortArgs.init_new",
    "SamplingParams.normalize",
    "Scheduler.get_next_batch_to_run",
    "Scheduler.is_fully_idle",
    "Scheduler.on_idle",
    "Scheduler.process_batch_result",
    "Scheduler.process_input_requests",
    "Scheduler.run_batch",
    "Scheduler.token_to_kv_pool_allocator.available_size",
    "Scheduler.tree_cache.evictable_size",
    "Scheduler.tree_cache.protected_size",
    "Scheduler.req_to_token_pool.available_size",
}

WRITTEN = {
    "Scheduler.cur_batch",
    "Scheduler.ipc_channels",
    "Scheduler.last_batch",
    "Scheduler.load_snapshot_writer",
}

READ = {
    "AbortReq.finished_reason",
    "AbortReq.rid",
    "BatchTokenIDOutput.cached_tokens",
    "BatchTokenIDOutput.completion_tokens",
    "BatchTokenIDOutput.finished_reasons",
    "BatchTokenIDOutput.output_ids",
    "BatchTokenIDOutput.prompt_tokens",
    "BatchTokenIDOutput.retraction_counts",
    "BatchTokenIDOutput.rids",
    "Scheduler.cur_batch",
    "Scheduler.max_total_num_tokens",
    "Scheduler.req_to_token_pool",
    "Scheduler.req_to_token_pool.size",
    "Scheduler.running_batch",
    "Scheduler.running_batch.reqs",
    "Scheduler.token_to_kv_pool_allocator",
    "Scheduler.tree_cache",
    "Scheduler.waiting_queue",
}

# Keyword arguments of what is constructed.
KEYWORDS = {
    "AbortReq(rid=)",
    "SamplingParams(max_new_tokens=)",
    "SamplingParams(repetition_penalty=)",
    "SamplingParams(stop_token_ids=)",
    "SamplingParams(temperature=)",
    "SamplingParams(top_p=)",
    "ServerArgs(attention_backend=)",
    "ServerArgs(chunked_prefill_size=)",
    "ServerArgs(context_length=)",
    "ServerArgs(device=)",
    "ServerArgs(disable_cuda_graph=)",
    "ServerArgs(disable_overlap_schedule=)",
    "ServerArgs(dtype=)",
    "ServerArgs(enable_mixed_chunk=)",
    "ServerArgs(grammar_backend=)",
    "ServerArgs(log_level=)",
    "ServerArgs(max_running_requests=)",
    "ServerArgs(max_total_tokens=)",
    "ServerArgs(model_path=)",
    "ServerArgs(page_size=)",
    "ServerArgs(sampling_backend=)",
    "ServerArgs(skip_tokenizer_init=)",
    "ServerArgs(watchdog_timeout=)",
    "TokenizedGenerateReqInput(input_embeds=)",
    "TokenizedGenerateReqInput(input_ids=)",
    "TokenizedGenerateReqInput(input_text=)",
    "TokenizedGenerateReqInput(logprob_start_len=)",
    "TokenizedGenerateReqInput(mm_inputs=)",
    "TokenizedGenerateReqInput(return_logprob=)",
    "TokenizedGenerateReqInput(rid=)",
    "TokenizedGenerateReqInput(sampling_params=)",
    "TokenizedGenerateReqInput(stream=)",
    "TokenizedGenerateReqInput(token_ids_logprob=)",
    "TokenizedGenerateReqInput(token_type_ids=)",
    "TokenizedGenerateReqInput(top_logprobs_num=)",
}

# What upstream calls or reads on the objects that we put in its place.
PROVIDED = {
    "ipc_channels.recv_from_rpc",
    "ipc_channels.recv_from_tokenizer",
    "ipc_channels.send_metrics_from_scheduler",
    "ipc_channels.send_to_detokenizer",
    "ipc_channels.send_to_tokenizer",
    "send_output",
}

ALL = IMPORTED | OVERRIDDEN | CALLED | WRITTEN | READ | PROVIDED
