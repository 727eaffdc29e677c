//! Software iWARP: the driver's parts of the control path. Its rings are not spoken yet.
//!
//! (`drivers/infiniband/sw/siw`, uapi `siw-abi.h`.)

use std::sync::atomic::{AtomicU8, Ordering};

use verbs_abi::siw::{siw_ureq_reg_mr, siw_uresp_reg_mr};
use verbs_abi::{ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp};

use crate::error::Result;
use crate::verbs::Context;

/// The low byte of the next steering tag: the program's to choose, and different each time so that a
/// key of a region that is gone is not likely to fit the next one.
static NEXT_KEY: AtomicU8 = AtomicU8::new(1);

pub(super) fn register_memory(
    context: &Context,
    request: ib_uverbs_reg_mr,
) -> Result<ib_uverbs_reg_mr_resp> {
    let driver_request = siw_ureq_reg_mr {
        stag_key: NEXT_KEY.fetch_add(1, Ordering::Relaxed),
        ..siw_ureq_reg_mr::default()
    };
    let what = format!("{} bytes of memory", request.length.get());
    let (response, _): (_, siw_uresp_reg_mr) =
        context.driver_command("register", &what, request, &driver_request)?;
    Ok(response)
}
