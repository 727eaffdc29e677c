// SPDX-License-Identifier: GPL-2.0
/* Protection domains, address handles and memory regions. */
#include "card.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define dma_buf_vmap_unlocked dma_buf_vmap
#define dma_buf_vunmap_unlocked dma_buf_vunmap
#endif

int card_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct card_pd *pd = container_of(ibpd, struct card_pd, ib);
	struct mlx5_ib_alloc_pd_resp resp = {};
	int err = xa_alloc_cyclic(&card_numbers, &pd->pdn, pd, XA_LIMIT(1, 0xffffff), &card_next_number,
				  GFP_KERNEL);

	if (err < 0)
		return err;
	resp.pdn = pd->pdn;
	card_journal(NULL, 0, "alloc_pd pdn=%u inlen=%zu outlen=%zu", pd->pdn, udata ? udata->inlen : 0,
		    udata ? udata->outlen : 0);
	err = udata ? card_give(udata, "alloc_pd", &resp, sizeof(resp), sizeof(resp)) : 0;
	if (err)
		xa_erase(&card_numbers, pd->pdn);
	return err;
}

int card_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct card_pd *pd = container_of(ibpd, struct card_pd, ib);

	card_journal(NULL, 0, "dealloc_pd pdn=%u", pd->pdn);
	xa_erase(&card_numbers, pd->pdn);
	return 0;
}

int card_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	card_journal(NULL, 0, "alloc_xrcd inlen=%zu outlen=%zu", udata ? udata->inlen : 0, udata ? udata->outlen : 0);
	return 0;
}

int card_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	card_journal(NULL, 0, "dealloc_xrcd");
	return 0;
}

int card_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *attr, struct ib_udata *udata)
{
	struct card_ah *ah = container_of(ibah, struct card_ah, ib);
	struct mlx5_ib_create_ah_resp resp = {};

	ah->attr = *attr->ah_attr;
	if (!udata)
		return 0;
	if (udata->outlen < offsetofend(struct mlx5_ib_create_ah_resp, dmac))
		return -EINVAL;
	resp.response_length = offsetofend(struct mlx5_ib_create_ah_resp, dmac);
	memcpy(resp.dmac, ah->attr.roce.dmac, ETH_ALEN);
	card_journal(ah->attr.grh.dgid.raw, sizeof(ah->attr.grh.dgid),
		    "create_ah inlen=%zu outlen=%zu flags=%u port=%u sgid=%u flow=%u hop=%u tclass=%u sl=%u rate=%u",
		    udata->inlen, udata->outlen, ah->attr.ah_flags, ah->attr.port_num, ah->attr.grh.sgid_index,
		    ah->attr.grh.flow_label, ah->attr.grh.hop_limit, ah->attr.grh.traffic_class, ah->attr.sl,
		    ah->attr.static_rate);
	return card_give(udata, "create_ah", &resp, resp.response_length, 0);
}

int card_destroy_ah(struct ib_ah *ah, u32 flags)
{
	if (ah->uobject)
		card_journal(NULL, 0, "destroy_ah");
	return 0;
}

/* Allocates the number of a key. A program may change the low byte later. */
static int card_new_key(struct card_key *key)
{
	u32 index;
	int err = xa_alloc_cyclic(&card_mkeys, &index, key, XA_LIMIT(2, 0xffffff), &card_next_mkey, GFP_KERNEL);

	if (err < 0)
		return err;
	key->key = index << 8 | (index * 7 & 0xff);
	return 0;
}

struct ib_mr *card_get_dma_mr(struct ib_pd *pd, int access)
{
	struct card_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);

	return mr ? &mr->ib : ERR_PTR(-ENOMEM);
}

static struct card_mr *card_new_mr(struct ib_pd *pd, u64 length, u64 iova, int access)
{
	struct card_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);

	if (!mr)
		return NULL;
	mr->key.pd = pd;
	mr->key.start = iova;
	mr->key.length = length;
	mr->key.access = access;
	return mr;
}

static void card_free_mr(struct card_mr *mr)
{
	card_unmap(&mr->map);
	if (mr->dmabuf) {
		dma_buf_vunmap_unlocked(mr->dmabuf, &mr->dmabuf_map);
		dma_buf_put(mr->dmabuf);
	}
	kfree(mr);
}

/* Allocates the key of a region that has its memory. */
static struct ib_mr *card_add_mr(struct card_mr *mr)
{
	int err;

	mutex_lock(&card_lock);
	err = card_new_key(&mr->key);
	mutex_unlock(&card_lock);
	if (err) {
		card_free_mr(mr);
		return ERR_PTR(err);
	}
	mr->ib.lkey = mr->ib.rkey = mr->key.key;
	return &mr->ib;
}

static struct ib_mr *card_register(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access)
{
	struct card_mr *mr = card_new_mr(pd, length, iova, access);
	struct ib_mr *ibmr;
	int err;

	if (!mr)
		return ERR_PTR(-ENOMEM);
	err = card_map(pd->device, &mr->map, start, length, access);
	if (err) {
		card_free_mr(mr);
		return ERR_PTR(err);
	}
	mr->key.memory = mr->map.va;
	ibmr = card_add_mr(mr);
	if (IS_ERR(ibmr))
		return ibmr;
	if (card_trace)
		pr_info("rdmacm_mlx5: reg_mr key %#x length %#llx access %#x\n", mr->ib.lkey, length, access);
	card_journal(NULL, 0, "reg_mr pdn=%u key=%u start=%llu length=%llu iova=%llu access=%#x",
		    container_of(pd, struct card_pd, ib)->pdn, mr->ib.lkey, start, length, iova, access);
	return ibmr;
}

/* The device has no DMA, so it needs no attachment to the buffer: the engine reads and writes it as plain memory. */
static int card_map_dmabuf(struct card_mr *mr, int fd, u64 offset)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	int err = PTR_ERR_OR_ZERO(dmabuf);

	if (err)
		return err;
	if (!mr->key.length || offset > dmabuf->size || mr->key.length > dmabuf->size - offset)
		err = -EINVAL;
	if (!err)
		err = dma_buf_vmap_unlocked(dmabuf, &mr->dmabuf_map);
	if (err) {
		dma_buf_put(dmabuf);
		return err;
	}
	mr->dmabuf = dmabuf;
	mr->key.memory = mr->dmabuf_map.vaddr + offset;
	/* The engine uses memcpy, which must not access the I/O memory of another device. */
	return mr->dmabuf_map.is_iomem ? -EOPNOTSUPP : 0;
}

static struct ib_mr *card_register_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd, int access)
{
	struct card_mr *mr = card_new_mr(pd, length, iova, access);
	struct ib_mr *ibmr;
	int err;

	if (!mr)
		return ERR_PTR(-ENOMEM);
	err = card_map_dmabuf(mr, fd, offset);
	if (err) {
		card_free_mr(mr);
		return ERR_PTR(err);
	}
	ibmr = card_add_mr(mr);
	if (!IS_ERR(ibmr))
		card_journal(NULL, 0, "reg_dmabuf_mr pdn=%u key=%u offset=%llu length=%llu iova=%llu access=%#x",
			    container_of(pd, struct card_pd, ib)->pdn, ibmr->lkey, offset, length, iova, access);
	return ibmr;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
struct ib_mr *card_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd, int access,
				      struct ib_dmah *dmah, struct uverbs_attr_bundle *attrs)
{
	return dmah ? ERR_PTR(-EOPNOTSUPP) : card_register_dmabuf(pd, offset, length, iova, fd, access);
}
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
struct ib_mr *card_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd, int access,
				      struct uverbs_attr_bundle *attrs)
{
	return card_register_dmabuf(pd, offset, length, iova, fd, access);
}
#else
struct ib_mr *card_reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova, int fd, int access,
				      struct ib_udata *udata)
{
	return card_register_dmabuf(pd, offset, length, iova, fd, access);
}
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
struct ib_mr *card_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access,
				     struct ib_dmah *dmah, struct ib_udata *udata)
{
	return dmah ? ERR_PTR(-EOPNOTSUPP) : card_register(pd, start, length, iova, access);
}
#else
struct ib_mr *card_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access,
				     struct ib_udata *udata)
{
	return card_register(pd, start, length, iova, access);
}
#endif

/* Changes a region, which keeps its key. */
struct ib_mr *card_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length, u64 iova, int access,
				 struct ib_pd *pd, struct ib_udata *udata)
{
	struct card_mr *mr = container_of(ibmr, struct card_mr, ib);
	struct card_map map = {};
	int err;

	if (mr->dmabuf || flags & ~(IB_MR_REREG_TRANS | IB_MR_REREG_PD | IB_MR_REREG_ACCESS))
		return ERR_PTR(-EOPNOTSUPP);
	if (!(flags & IB_MR_REREG_ACCESS))
		access = mr->key.access;
	if (flags & IB_MR_REREG_TRANS) {
		err = card_map(ibmr->device, &map, start, length, access);
		if (err)
			return ERR_PTR(err);
	} else if (ib_access_writable(access) && !mr->map.umem->writable) {
		return ERR_PTR(-EACCES);
	}
	mutex_lock(&card_lock);
	if (flags & IB_MR_REREG_TRANS) {
		swap(mr->map, map);
		mr->key.memory = mr->map.va;
		mr->key.start = iova;
		mr->key.length = length;
	}
	if (flags & IB_MR_REREG_PD)
		mr->key.pd = pd;
	mr->key.access = access;
	mutex_unlock(&card_lock);
	card_unmap(&map);
	card_journal(NULL, 0, "rereg_mr key=%u flags=%#x pdn=%u start=%llu length=%llu iova=%llu access=%#x", ibmr->lkey,
		     flags, container_of(mr->key.pd, struct card_pd, ib)->pdn, start, length, iova, access);
	return NULL;
}

int card_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct card_mr *mr = container_of(ibmr, struct card_mr, ib);

	/* Only regions of programs have a key in card_mkeys. */
	if (mr->key.memory) {
		card_journal(NULL, 0, "dereg_mr key=%u", mr->ib.lkey);
		mutex_lock(&card_lock);
		xa_erase(&card_mkeys, mr->ib.lkey >> 8);
		mutex_unlock(&card_lock);
	}
	card_free_mr(mr);
	return 0;
}

int card_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct card_mw *mw = container_of(ibmw, struct card_mw, ib);
	int err;

	mw->key.pd = ibmw->pd;
	mw->key.is_window = true;
	mw->key.is_type_2 = ibmw->type == IB_MW_TYPE_2;
	mutex_lock(&card_lock);
	err = card_new_key(&mw->key);
	mutex_unlock(&card_lock);
	ibmw->rkey = mw->key.key;
	card_journal(NULL, 0, "alloc_mw pdn=%u key=%u type=%d", container_of(ibmw->pd, struct card_pd, ib)->pdn,
		    ibmw->rkey, ibmw->type);
	return err;
}

int card_dealloc_mw(struct ib_mw *ibmw)
{
	struct card_mw *mw = container_of(ibmw, struct card_mw, ib);

	card_journal(NULL, 0, "dealloc_mw key=%u", mw->key.key);
	mutex_lock(&card_lock);
	xa_erase(&card_mkeys, mw->key.key >> 8);
	mutex_unlock(&card_lock);
	return 0;
}
