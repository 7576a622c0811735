"""Every SGLang name that `voice_runtime/sglang_backend/` touches. A new or an unused one fails test_sglang_names.py.

Pinned: sglang 0.5.15.post1. Grows only in review; fewer is better. docs/upstream.md says why each seam is needed.
"""

IMPORTED = {
    "sglang.srt.layers.logits_processor.LogitsProcessorOutput",
    "sglang.srt.layers.radix_attention.RadixAttention",
    "sglang.srt.managers.io_struct.AbortReq",
    "sglang.srt.managers.io_struct.BatchTokenIDOutput",
    "sglang.srt.managers.io_struct.TokenizedGenerateReqInput",
    "sglang.srt.managers.scheduler.Scheduler",
    "sglang.srt.managers.utils.GenerationBatchResult",
    "sglang.srt.model_executor.forward_batch_info.ForwardBatch",
    "sglang.srt.models.registry.ModelRegistry",
    "sglang.srt.sampling.sampling_params.SamplingParams",
    "sglang.srt.server_args.PortArgs",
    "sglang.srt.server_args.ServerArgs",
}

OVERRIDDEN = {
    "Scheduler.init_batch_result_processor",
    "Scheduler.init_ipc_channels",
}

# Read, written or called on an object of upstream's, by the class that defines the name.
TOUCHED = {
    "BaseBatchReq.rids",
    "BasePrefixCache.evictable_size",
    "BasePrefixCache.protected_size",
    "BaseReq.rid",
    "BaseTokenToKVPoolAllocator.available_size",
    "BaseTpWorker.model_runner",
    "BatchTokenIDOutput.finished_reasons",
    "BatchTokenIDOutput.output_ids",
    "BatchTokenIDOutput.retraction_counts",
    "ForwardBatch.extend_seq_lens_cpu",
    "ForwardBatch.init_new",
    "ForwardBatch.mrope_positions",
    "ForwardBatch.rids",
    "ForwardBatch.seq_lens_cpu",
    "LogitsProcessorOutput.next_token_logits",
    "ModelRegistry.register",
    "ModelRunner.forward",
    "ModelRunner.model",
    "ModelRunner.sample",
    "ModelRunnerOutput.logits_output",
    "PortArgs.init_new",
    "Qwen3MoeLLMModel.config",
    "Qwen3MoeLLMModel.deepstack_embed_to_decoder_layer",
    "Req.skip_radix_cache_insert",
    "ReqToTokenPool.available_size",
    "SamplingParams.normalize",
    "ScheduleBatch.copy",
    "ScheduleBatch.reqs",
    "Scheduler.abort_request",
    "Scheduler.cur_batch",
    "Scheduler.get_next_batch_to_run",
    "Scheduler.ipc_channels",
    "Scheduler.is_fully_idle",
    "Scheduler.last_batch",
    "Scheduler.load_snapshot_writer",
    "Scheduler.model_worker",
    "Scheduler.on_idle",
    "Scheduler.process_batch_result",
    "Scheduler.process_input_requests",
    "Scheduler.req_to_token_pool",
    "Scheduler.run_batch",
    "Scheduler.token_to_kv_pool_allocator",
    "Scheduler.tp_worker",
    "Scheduler.tree_cache",
}

# Methods of ours that upstream calls, on the objects that we put in its place.
PROVIDED = {
    "EntryClass",
    "forward",
    "forward_batch_generation",
    "load_weights",
    "send_output",
}

# Keyword arguments of what is constructed.
KEYWORDS = {
    "AbortReq(rid=)",
    "GenerationBatchResult(next_token_ids=)",
    "LogitsProcessorOutput(next_token_logits=)",
    "RadixAttention(layer_id=)",
    "SamplingParams(max_new_tokens=)",
    "SamplingParams(stop_token_ids=)",
    "SamplingParams(temperature=)",
    "SamplingParams(top_k=)",
    "SamplingParams(top_p=)",
    "ServerArgs(attention_backend=)",
    "ServerArgs(chunked_prefill_size=)",
    "ServerArgs(context_length=)",
    "ServerArgs(device=)",
    "ServerArgs(disable_cuda_graph=)",
    "ServerArgs(disable_overlap_schedule=)",
    "ServerArgs(disable_radix_cache=)",
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
    "ServerArgs(tp_size=)",
    "ServerArgs(watchdog_timeout=)",
    "Qwen3MoeLLMModel(input_deepstack_embeds=)",
    "Qwen3MoeLLMModel(input_embeds=)",
    "TokenizedGenerateReqInput(extra_key=)",
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
    "ipc_channels(recv_from_rpc=)",
    "ipc_channels(recv_from_tokenizer=)",
    "ipc_channels(send_metrics_from_scheduler=)",
    "ipc_channels(send_to_detokenizer=)",
    "ipc_channels(send_to_tokenizer=)",
}

# Attributes of ours on a class of upstream's.
OURS = {
    "Scheduler.__init__",
    "Scheduler._can_look_ahead",
    "Scheduler._process_launched",
    "Scheduler._without",
    "Scheduler.choose",
    "Scheduler.collector",
    "Scheduler.end_failed",
    "Scheduler.failures",
    "Scheduler.on_failure",
    "Scheduler.our_runner",
    "Scheduler.our_worker",
    "Scheduler.rest",
    "Scheduler.round",
}

# Accesses that no test makes: the file and its text.
UNSEEN: set[str] = set()

ALL = IMPORTED | OVERRIDDEN | TOUCHED
