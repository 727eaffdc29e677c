//! Opening a device: the request of GET_CONTEXT, and the facts in its answer.

use std::env;
use std::sync::Arc;

use nix::errno::Errno;
use verbs_abi::ib_uverbs_query_port;
use verbs_abi::mlx5::{
    mlx5_ib_alloc_ucontext_req_v2, mlx5_ib_alloc_ucontext_resp, mlx5_ib_alloc_ucontext_resp_mask,
    mlx5_lib_caps, mlx5_user_cmds_supp_uhw,
};
use verbs_abi::rdma_link_layer;
use zerocopy::IntoBytes as _;

use super::geometry::Limits;
use super::registers::{MAX_REGISTERS, RegisterFacts, Registers, registers_per_page};
use super::table::UserIndices;
use crate::driver::{CommandContext, CreateError, Opened};
use crate::sys::command::CommandError;
use crate::sys::node::NodeFailure;
use crate::sys::uverbs::UverbsFile;

/// The smallest number of registers that the driver requests.
const REGISTERS: u32 = 16;

/// The number of queue pairs that have a register for themselves.
const DEDICATED: u32 = 4;

/// Choices of the user, by the environment variables of the C library.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choices {
    pub(super) registers: u32,
    pub(super) dedicated: u32,
    pub(super) copies_nothing: bool,
    /// `true` if only requests with inline data are copied to registers.
    pub(super) copies_inline_only: bool,
    pub(super) completion_shift: u32,
}

impl Choices {
    /// Reads the choices from the environment variables of the C library.
    ///
    /// The variables are `MLX5_TOTAL_UUARS`, `MLX5_NUM_LOW_LAT_UUARS`, `MLX5_SHUT_UP_BF`, `MLX5_POST_SEND_PREFER_BF`
    /// and `MLX5_CQE_SIZE`.
    ///
    /// `MLX5_SINGLE_THREADED` changes nothing: a safe program cannot promise to post from one thread only.
    fn from_environment() -> Self {
        let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
        // At least all registers of a page.
        let least = registers_per_page().clamp(REGISTERS, MAX_REGISTERS);
        let registers = number("MLX5_TOTAL_UUARS").unwrap_or(least).clamp(least, MAX_REGISTERS);
        let registers = registers.next_multiple_of(2);
        let dedicated = number("MLX5_NUM_LOW_LAT_UUARS").unwrap_or(DEDICATED);
        let dedicated = dedicated.max(registers - (REGISTERS - DEDICATED)).min(registers - 1);
        let completion_shift = if number("MLX5_CQE_SIZE") == Some(128) { 7 } else { 6 };
        let copies_nothing = env::var("MLX5_SHUT_UP_BF").is_ok_and(|value| value != "0");
        let copies_inline_only =
            env::var("MLX5_POST_SEND_PREFER_BF").is_ok_and(|value| value == "0");
        Self { registers, dedicated, copies_nothing, copies_inline_only, completion_shift }
    }
}

/// Makes `file` a context. Older kernels accept only the beginning of the request.
fn get_context(
    file: &UverbsFile,
    request: &mlx5_ib_alloc_ucontext_req_v2,
) -> Result<(Opened, mlx5_ib_alloc_ucontext_resp), CommandError> {
    fn first<const N: usize>(request: &mlx5_ib_alloc_ucontext_req_v2) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&request.as_bytes()[..N]);
        bytes
    }
    let answer = file
        .get_context(first::<32>(request))
        .or_else(|_| file.get_context(first::<24>(request)))
        .or_else(|_| file.get_context(first::<16>(request)));
    let (async_events, completion_vectors, response) = answer?;
    Ok((Opened { async_events, completion_vectors }, response))
}

/// The facts in the answer of GET_CONTEXT, and the objects of a context.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) limits: Limits,
    pub(super) registers: Arc<Registers>,
    /// `true` if only requests with inline data are copied to registers.
    pub(super) copies_inline_only: bool,
    /// Absent if completions name queue pairs by queue pair number (version 0).
    pub(super) user_indices: Option<Arc<UserIndices>>,
    /// The logarithm of the bytes of an entry of a completion queue.
    pub(super) completion_shift: u32,
    /// `true` if the kernel answers CREATE_AH with the MAC address of the destination.
    pub(super) resolves_addresses: bool,
    pub(super) has_ece: bool,
}

/// Opens the device of `file`.
///
/// If [dynamic registers](Registers::dynamic) cannot be used, this opens the node again and takes static registers,
/// which need no ioctl and which the kernel names.
pub(super) fn open(file: &mut UverbsFile) -> Result<(Facts, Opened), CreateError> {
    let choices = Choices::from_environment();
    if let Some(opened) = open_with(choices, file, mlx5_lib_caps::MLX5_LIB_CAP_DYN_UAR)? {
        return Ok(opened);
    }
    *file = file.reopen().map_err(|failure| {
        CreateError::Command(CommandError::Os(match failure {
            NodeFailure::Os(errno) => errno,
            // The node belongs to another device now.
            NodeFailure::OtherFile => Errno::ENODEV,
        }))
    })?;
    // The kernel offers dynamic registers only to a library that can use them.
    open_with(choices, file, mlx5_lib_caps::empty())?.ok_or(CreateError::Map(Errno::EPROTO))
}

/// Makes `file` a context, for a library with the features `lib_caps`.
///
/// Returns `None` if the dynamic registers of the context cannot be used.
fn open_with(
    choices: Choices,
    file: &UverbsFile,
    lib_caps: mlx5_lib_caps,
) -> Result<Option<(Facts, Opened)>, CreateError> {
    let lib_caps = mlx5_lib_caps::MLX5_LIB_CAP_4K_UAR | lib_caps;
    let request = mlx5_ib_alloc_ucontext_req_v2 {
        total_num_bfregs: choices.registers,
        num_low_latency_bfregs: choices.dedicated,
        max_cqe_version: 1,
        lib_caps: lib_caps.bits().into(),
        ..mlx5_ib_alloc_ucontext_req_v2::default()
    };
    let (opened, response) = get_context(file, &request)?;
    let facts = facts(choices, &response, |facts| Registers::map(file, facts))?;
    Ok(facts.map(|facts| (facts, opened)))
}

/// Returns the facts in the answer of GET_CONTEXT. `map` maps the registers.
///
/// Returns `None` if `map` does.
pub(super) fn facts(
    choices: Choices,
    response: &mlx5_ib_alloc_ucontext_resp,
    map: impl FnOnce(RegisterFacts) -> Result<Option<Registers>, CreateError>,
) -> Result<Option<Facts>, CreateError> {
    if response.cqe_version > 1 {
        return Err(CreateError::Unsupported(
            "completion queue entries of a version above 1 by mlx5",
        ));
    }
    let facts = RegisterFacts {
        total: response.tot_bfregs,
        dedicated: choices.dedicated,
        shared: choices.registers.saturating_sub(choices.dedicated),
        size: response.bf_reg_size,
        // Old kernels have one register, and report 0.
        per_kernel_page: response.num_uars_per_page.max(1),
        copies_nothing: choices.copies_nothing,
    };
    let Some(registers) = map(facts)? else { return Ok(None) };
    let supports = |command| response.cmds_supp_uhw.contains(command);
    let limits = Limits {
        send_entry: response.max_sq_desc_sz.into(),
        receive_entry: response.max_rq_desc_sz.into(),
        send_blocks: response.max_send_wqebb,
        receives: response.max_recv_wr,
        shared_receives: response.max_srq_recv_wr,
    };
    Ok(Some(Facts {
        limits: limits.clamped(),
        registers: Arc::new(registers),
        copies_inline_only: choices.copies_inline_only,
        user_indices: (response.cqe_version == 1).then(UserIndices::new),
        completion_shift: choices.completion_shift,
        resolves_addresses: supports(mlx5_user_cmds_supp_uhw::MLX5_USER_CMDS_SUPP_UHW_CREATE_AH),
        has_ece: response
            .comp_mask
            .contains(mlx5_ib_alloc_ucontext_resp_mask::MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE),
    }))
}

/// Asks the kernel for the link layer of `port`.
pub(super) fn link_layer(
    cx: CommandContext<'_>,
    port_num: u8,
) -> Result<rdma_link_layer, CommandError> {
    let request = ib_uverbs_query_port { port_num, ..ib_uverbs_query_port::default() };
    let (response, ()) = cx.command(request)?;
    match response.link_layer {
        layer @ (rdma_link_layer::IB_LINK_LAYER_INFINIBAND
        | rdma_link_layer::IB_LINK_LAYER_ETHERNET) => Ok(layer),
        // Kernels that do not know link layers have InfiniBand only.
        rdma_link_layer::IB_LINK_LAYER_UNSPECIFIED => Ok(rdma_link_layer::IB_LINK_LAYER_INFINIBAND),
        _ => Err(CommandError::Os(Errno::EPROTO)),
    }
}

#[cfg(test)]
mod tests;
