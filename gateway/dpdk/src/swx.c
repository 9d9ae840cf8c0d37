/* A pipeline of DPDK's SWX library: the calls whose structures only a C compiler knows.
 *
 * Ports, tables and extern objects are Rust's: each is known here by its address, which reaches the
 * functions that make it as text, because the library hands on texts only. src/swx/sys.rs declares
 * what is here once more and must be kept in step. Functions that can fail return a negative errno.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_memory.h>
#include <rte_swx_ctl.h>
#include <rte_swx_extern.h>
#include <rte_swx_pipeline.h>
#include <rte_swx_port.h>
#include <rte_swx_table.h>

#define TYPE "natgate"
/* What is dropped leaves by a port, too. */
#define DROPPED "natgate_dropped"
#define ADDRESS 20
#define MOST_LISTED 64

/* src/swx/sys.rs has these structures, too. */
_Static_assert(sizeof(struct rte_swx_pkt) == 24, "a packet");
_Static_assert(offsetof(struct rte_swx_pkt, pkt) == 8, "a packet's buffer");
_Static_assert(offsetof(struct rte_swx_pkt, offset) == 16, "where a packet begins");
_Static_assert(offsetof(struct rte_swx_pkt, length) == 20, "a packet's length");
_Static_assert(sizeof(struct rte_swx_field_params) == 16, "a field");
_Static_assert(offsetof(struct rte_swx_field_params, n_bits) == 8, "a field's bits");

/* What packets and keys come to. */
struct natgate_swx_calls {
	rte_swx_port_in_pkt_rx_t receive;
	rte_swx_port_out_pkt_tx_t send;
	rte_swx_port_out_pkt_tx_t drop;
	rte_swx_table_lookup_t lookup;
};

static void *same(void *address)
{
	return address;
}

static void nothing(void *object)
{
	(void)object;
}

static void no_input(void *port, struct rte_swx_port_in_stats *stats)
{
	(void)port;
	memset(stats, 0, sizeof(*stats));
}

static void no_output(void *port, struct rte_swx_port_out_stats *stats)
{
	(void)port;
	memset(stats, 0, sizeof(*stats));
}

/* Programs have no instruction that clones. */
static void no_clone(void *port, struct rte_swx_pkt *pkt)
{
	(void)port;
	(void)pkt;
}

static void no_cut_clone(void *port, struct rte_swx_pkt *pkt, uint32_t length)
{
	(void)length;
	no_clone(port, pkt);
}

static uint64_t no_mailbox(void)
{
	return 0;
}

static void *addressed(const char *text)
{
	return (void *)(uintptr_t)strtoull(text, NULL, 16);
}

static void *table_at(struct rte_swx_table_params *params, struct rte_swx_table_entry_list *entries,
		      const char *text, int numa_node)
{
	(void)params;
	(void)entries;
	(void)numa_node;
	return addressed(text);
}

static void written(char text[ADDRESS], const void *address)
{
	snprintf(text, ADDRESS, "%llx", (unsigned long long)(uintptr_t)address);
}

/* A pipeline with a port in and two out, all of them known as ports. */
int natgate_swx_new(struct rte_swx_pipeline **pipeline, const struct natgate_swx_calls *calls,
		    void *ports)
{
	struct rte_swx_port_in_ops in = {
		.create = same, .free = nothing, .pkt_rx = calls->receive, .stats_read = no_input
	};
	struct rte_swx_port_out_ops out = {
		.create = same,
		.free = nothing,
		.pkt_tx = calls->send,
		.pkt_fast_clone_tx = no_clone,
		.pkt_clone_tx = no_cut_clone,
		.stats_read = no_output,
	};
	struct rte_swx_table_ops table = {
		.mailbox_size_get = no_mailbox,
		.create = table_at,
		.lkp = calls->lookup,
		.free = nothing,
	};
	int error = rte_swx_pipeline_config(pipeline, NULL, SOCKET_ID_ANY);

	if (error)
		return error;
	error = rte_swx_pipeline_port_in_type_register(*pipeline, TYPE, &in);
	error = error ? error : rte_swx_pipeline_port_out_type_register(*pipeline, TYPE, &out);
	out.pkt_tx = calls->drop;
	error = error ? error : rte_swx_pipeline_port_out_type_register(*pipeline, DROPPED, &out);
	error = error ? error : rte_swx_pipeline_port_in_config(*pipeline, 0, TYPE, ports);
	error = error ? error : rte_swx_pipeline_port_out_config(*pipeline, 0, TYPE, ports);
	error = error ? error : rte_swx_pipeline_port_out_config(*pipeline, 1, DROPPED, ports);
	error = error ? error : rte_swx_pipeline_table_type_register(
					*pipeline, TYPE, RTE_SWX_TABLE_MATCH_WILDCARD, &table);
	return error;
}

int natgate_swx_struct(struct rte_swx_pipeline *pipeline, const char *name,
		       struct rte_swx_field_params *fields, uint32_t count)
{
	return rte_swx_pipeline_struct_type_register(pipeline, name, fields, count, 0);
}

int natgate_swx_header(struct rte_swx_pipeline *pipeline, const char *name, const char *of)
{
	return rte_swx_pipeline_packet_header_register(pipeline, name, of);
}

int natgate_swx_metadata(struct rte_swx_pipeline *pipeline, const char *of)
{
	return rte_swx_pipeline_packet_metadata_register(pipeline, of);
}

int natgate_swx_array(struct rte_swx_pipeline *pipeline, const char *name, uint32_t size,
		      uint64_t initial)
{
	return rte_swx_pipeline_regarray_config(pipeline, name, size, initial);
}

/* An extern object, with a type of its own. */
int natgate_swx_extern(struct rte_swx_pipeline *pipeline, const char *type, const char *mailbox,
		       const char *name, void *object, const char **functions,
		       const rte_swx_extern_type_member_func_t *calls, uint32_t count)
{
	char text[ADDRESS];
	int error = rte_swx_pipeline_extern_type_register(pipeline, type, mailbox, addressed, nothing);

	for (uint32_t i = 0; !error && i < count; i++)
		error = rte_swx_pipeline_extern_type_member_func_register(pipeline, type,
									  functions[i], calls[i]);
	written(text, object);
	return error ? error : rte_swx_pipeline_extern_object_config(pipeline, type, name, text);
}

int natgate_swx_action(struct rte_swx_pipeline *pipeline, const char *name, const char *args,
		       const char **instructions, uint32_t count)
{
	return rte_swx_pipeline_action_config(pipeline, name, args, instructions, count);
}

/* All keys are said to be wildcards, so that the library always takes our type of table. */
int natgate_swx_table(struct rte_swx_pipeline *pipeline, const char *name, const char **keys,
		      uint32_t key_count, const char **actions, uint32_t action_count,
		      const char *default_action, const char *default_args, uint32_t size, void *object)
{
	struct rte_swx_match_field_params fields[MOST_LISTED];
	struct rte_swx_pipeline_table_params params = {
		.fields = fields,
		.n_fields = key_count,
		.action_names = actions,
		.n_actions = action_count,
		.default_action_name = default_action,
		.default_action_args = default_args,
	};
	char text[ADDRESS];

	if (key_count > MOST_LISTED)
		return -EINVAL;
	for (uint32_t i = 0; i < key_count; i++)
		fields[i] = (struct rte_swx_match_field_params){
			.name = keys[i], .match_type = RTE_SWX_TABLE_MATCH_WILDCARD
		};
	written(text, object);
	return rte_swx_pipeline_table_config(pipeline, name, &params, TYPE, text, size);
}

int natgate_swx_build(struct rte_swx_pipeline *pipeline, const char **instructions, uint32_t count)
{
	int error = rte_swx_pipeline_instructions_config(pipeline, instructions, count);

	return error ? error : rte_swx_pipeline_build(pipeline);
}

/* Whether an argument is to lie in a table with its most significant byte first. */
int natgate_swx_is_big_endian(struct rte_swx_pipeline *pipeline, uint32_t action, uint32_t arg)
{
	struct rte_swx_ctl_action_arg_info info;
	int error = rte_swx_ctl_action_arg_info_get(pipeline, action, arg, &info);

	return error ? error : info.is_network_byte_order;
}

/* What a table does with keys that it does not have. */
int natgate_swx_default(struct rte_swx_pipeline *pipeline, uint32_t table, uint64_t action,
			const uint64_t *args, uint32_t count)
{
	struct rte_swx_table_state *states;
	int error = rte_swx_pipeline_table_state_get(pipeline, &states);

	if (error)
		return error;
	if (count)
		memcpy(states[table].default_action_data, args, count * sizeof(*args));
	states[table].default_action_id = action;
	return 0;
}

int natgate_swx_read(struct rte_swx_pipeline *pipeline, const char *array, uint32_t index,
		     uint64_t *value)
{
	return rte_swx_ctl_pipeline_regarray_read(pipeline, array, index, value);
}

int natgate_swx_write(struct rte_swx_pipeline *pipeline, const char *array, uint32_t index,
		      uint64_t value)
{
	return rte_swx_ctl_pipeline_regarray_write(pipeline, array, index, value);
}

void natgate_swx_run(struct rte_swx_pipeline *pipeline, uint32_t instructions)
{
	rte_swx_pipeline_run(pipeline, instructions);
}

void natgate_swx_free(struct rte_swx_pipeline *pipeline)
{
	rte_swx_pipeline_free(pipeline);
}
